"""A kind that takes an opaque configuration is told what the claim says, and keeps what it needs."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from driver.claims.opaque import VfioDeviceConfig
from driver.errors import ClaimRefused
from driver.kinds.kind import OfferedKind
from kubeletplugin.claims.cdi.spec import Edits
from kubeletplugin.claims.journal.entry import HeldDevice
from kubeletplugin.devices.kinds.kind import HardwareNow
from kubeletplugin.devices.kinds.registry import HELD_KINDS
from kubeletplugin.kubelet.wire.planned import PlannedDevice
from tests.kubeletplugin.fake_node import FakeNode
from tests.toy_kind.held import HeldToy
from tests.toy_kind.offered import ToyKind


class ConfiguredToy(ToyKind):
    """A toy that takes a configuration."""

    opaque = "VfioDeviceConfig"


class HeldConfigured(HeldToy):
    """It tells containers what was configured."""

    offered: OfferedKind = ConfiguredToy()

    def locate(self, device: PlannedDevice, own: HeldDevice | None, hardware: HardwareNow) -> HeldDevice:
        """Keep what was asked for."""
        asked = device.config if isinstance(device.config, VfioDeviceConfig) else VfioDeviceConfig()
        return replace(super().locate(device, own, hardware), record={"policy": asked.backend_policy})

    def edits(self, held: HeldDevice, hardware: HardwareNow) -> Edits:
        """The variable with it."""
        return Edits(variables=(f"TOY={held.record['policy']}",), needs_driver=False)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[FakeNode]:
    with HELD_KINDS.added(HeldConfigured):
        node = FakeNode(tmp_path)
        yield node
        node.stop()


def config(**parameters: Any) -> list[Mapping[str, Any]]:
    body = {"apiVersion": "resource.nvidia.com/v1beta1", **parameters}
    return [{"source": "FromClaim", "opaque": {"driver": "gpu.nvidia.com", "parameters": body}}]


def test_what_the_claim_says_reaches_the_container(node: FakeNode) -> None:
    asked = config(kind="VfioDeviceConfig", iommu={"backendPolicy": "PreferIommuFD"})
    claim = node.claim_devices("tuned", "toy-0", config=asked)

    node.prepare(claim)
    node.restart()
    node.prepare(claim)

    assert "TOY=PreferIommuFD" in node.spec_path(claim).read_text()


def test_without_a_configuration_the_kind_decides(node: FakeNode) -> None:
    claim = node.claim_devices("plain", "toy-0")

    node.prepare(claim)

    assert "TOY=LegacyOnly" in node.spec_path(claim).read_text()


def test_what_is_wrong_with_it_is_told_by_the_field(node: FakeNode) -> None:
    claim = node.claim_devices("odd", "toy-0", config=config(kind="VfioDeviceConfig", colour="red"))

    with pytest.raises(ClaimRefused, match="colour: unknown field"):
        node.prepare(claim)
