"""Shared devices whose MPS control daemon does not serve are blocked, each with the reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from driver.devices.node_state import BlockedPlacement
from driver.nvml.mig import Placement
from driver.nvml.pci_address import PciAddress
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, ShareRecord
from kubeletplugin.devices.kinds.partition.record import PartitionRecord
from kubeletplugin.kubelet.wire.mps_daemon import MpsState
from kubeletplugin.reports.node_watch import daemons_down
from tests.kubeletplugin.held import made

GROUP, PCI = "gpu-0000-01-00-0", "0000:01:00.0"
DEVICE = f"{GROUP}-mps-4"
SERVES = MpsState(GROUP, running=True)


def held(device: str = DEVICE, group: str = GROUP) -> HeldDevice:
    share = ShareRecord(group, "MPS", 1)
    return HeldDevice("r", "p", device, PCI, "GPU-1", "cdi", "s", kind="whole", share=share)


def entry(
    *devices: HeldDevice,
    state: Literal["preparing", "prepared", "releasing"] = "prepared",
) -> Entry:
    return Entry("u", "team", "train", state, 0, devices or (held(),))


def blocked(message: str) -> tuple[BlockedPlacement, ...]:
    return (BlockedPlacement(PciAddress.parse(PCI), None, "mps-daemon", f"{DEVICE}: {message}"),)


@pytest.mark.parametrize(
    ("states", "message"),
    [
        (None, "the MPS supervisor of the node does not answer"),
        ((), "its MPS control daemon does not exist"),
        ((MpsState("gpu-0000-02-00-0", running=True),), "its MPS control daemon does not exist"),
        (
            (MpsState(GROUP, running=False, message="it died"),),
            "its MPS control daemon does not serve: it died",
        ),
    ],
)
def test_a_daemon_that_does_not_serve_blocks_its_device(
    states: tuple[MpsState, ...] | None, message: str
) -> None:
    assert daemons_down([entry(), entry()], states, "") == blocked(message), "each device once"


def test_a_daemon_that_serves_blocks_nothing() -> None:
    assert daemons_down([entry()], [SERVES], "") == ()


def test_what_needs_no_daemon_now_blocks_nothing() -> None:
    slice_ = replace(held(), share=ShareRecord(GROUP, "TimeSlicing", 1))
    whole = replace(held(), device=GROUP, share=None)
    for one in (
        entry(slice_, whole),
        entry(state="preparing"),
        entry(state="releasing"),
    ):
        assert daemons_down([one], None, "") == ()


def test_a_partition_blocks_its_own_place_and_a_group_all_its_gpus() -> None:
    name = f"{GROUP}-mig-1g-10gb-6"
    part = replace(held(f"{name}-mps-2", name), **made(PartitionRecord("1g.10gb", 19, 6, 1)))
    other = replace(held("gpu-0000-02-00-0"), pci="0000:02:00.0")
    found = daemons_down([entry(part), entry(replace(held(), device=GROUP), other)], [], "")
    assert [(one.pci, one.span) for one in found] == [
        (PciAddress.parse(PCI), None),
        (PciAddress.parse(PCI), Placement(6, 1)),
        (PciAddress.parse("0000:02:00.0"), None),
    ]
