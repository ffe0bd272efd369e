"""The spec of a claim brings each device's own nodes as they are now: a GPU's, or a partition's alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from driver.devices.names import gpu_device_name
from driver.errors import ClaimBlocked, HardwareChanged, NodeIncomplete
from driver.hardware.boards import Boards
from driver.kinds.partition.names import partition_device_name
from fakegpu.driver_files.driver_root import build_driver_root
from fakegpu.machine.capabilities import access_minor
from kubeletplugin.claims.cdi.hook import NO_HOOK
from kubeletplugin.claims.cdi.hooks import Hooks
from kubeletplugin.claims.files import Specs
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.devices.host.driver_files import InstalledDriver
from kubeletplugin.devices.host.gpu_nodes import GpuNodes, HostNow
from kubeletplugin.devices.kinds.kind import HardwareNow, NodePorts
from kubeletplugin.devices.kinds.partition.record import PartitionRecord, written
from kubeletplugin.devices.kinds.registry import HELD_KINDS
from kubeletplugin.kubelet.wire.controllers import Controllers
from kubeletplugin.sharing.shares import MpsFolders
from tests.kubeletplugin.cdi_schema import validate
from tests.kubeletplugin.fake_node import NoKernel, pci_parts
from tests.kubeletplugin.held import made, partition_of
from tests.kubeletplugin.partition_scene import Scene

MPS = MpsFolders(Path("/run/mps"))
METADATA = Path("/plugins/gpu.nvidia.com/metadata")


class Built:
    """The specs of a scene's claims, on a driver root of its machine."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self.scene = scene
        self.root = build_driver_root(folder / "driver", scene.machine)
        driver = InstalledDriver.below(self.root, Path("/host"))
        nodes = GpuNodes(folder / "sys")
        sysfs = folder / "sys"
        ports = NodePorts(
            scene.discovery,
            nodes,
            Journal(folder / "journal", lambda: False),
            sysfs,
            *pci_parts(NoKernel(), sysfs)[:3],
            driver,
            Controllers(lambda _number: None),
        )
        self.driver, kinds = driver, HELD_KINDS.on(ports)
        self.specs = Specs(
            kinds, nodes, driver, MPS, Hooks(NO_HOOK, folder, lambda: True, Path("/")), METADATA
        )

    def whole(self, gpu: int) -> HeldDevice:
        """A claim's whole GPU."""
        pci = self.scene.pci(gpu)
        name = gpu_device_name(pci)
        return HeldDevice("r", "p", name, str(pci), self.scene.machine.uuid(pci), f"u-{name}", kind="whole")

    def part(self, profile: str, start: int, gpu: int = 0) -> HeldDevice:
        """A claim's partition, which is made."""
        record = self.scene.make(self.scene.located(profile, start, gpu), gpu)
        name = partition_device_name(self.scene.pci(gpu), record.profile, start)
        return replace(self.whole(gpu), device=name, cdi_device=f"u-{name}", **made(record))

    def built(self, *devices: HeldDevice) -> Any:
        """The spec, valid by the schema."""
        entry = Entry("u", "team", "train", "preparing", 1, devices, pod_claim_name="gpus")
        hardware = HardwareNow(Boards(self.scene.discovery, Path("/nowhere")), HostNow(self.driver))
        built = json.loads(self.specs.spec(entry, hardware).data)
        validate(built)
        return built

    def nodes(self, *devices: HeldDevice) -> list[list[str]]:
        """The paths of each device's own nodes."""
        return [
            [node["path"] for node in device["containerEdits"]["deviceNodes"]]
            for device in self.built(*devices)["devices"]
        ]

    def instance_nodes(self, held: HeldDevice) -> list[str]:
        """The nodes that a partition has to bring, by the rule of the fake driver."""
        minor = self.scene.machine.state.gpus[self.scene.machine.pci(held.pci)].minor
        record = partition_of(held)
        assert record is not None
        assert record.gpu_instance_id is not None
        owner = access_minor(minor, record.gpu_instance_id)
        inside = access_minor(minor, record.gpu_instance_id, record.compute_instance_id)
        return [f"/dev/nvidia{minor}", *(f"/dev/nvidia-caps/nvidia-cap{cap}" for cap in (owner, inside))]


@pytest.fixture
def specs(scene: Scene, tmp_path: Path) -> Built:
    return Built(scene, tmp_path)


def test_a_whole_gpu_brings_its_node_and_its_drm_nodes(specs: Built) -> None:
    assert specs.nodes(specs.whole(2)) == [["/dev/nvidia2", "/dev/dri/card3", "/dev/dri/renderD130"]]


def test_a_partition_brings_its_parents_node_and_its_two_capabilities_and_no_drm_node(specs: Built) -> None:
    part = specs.part("3g-40gb", 4, gpu=2)

    assert specs.nodes(part) == [specs.instance_nodes(part)]
    (device,) = specs.built(part)["devices"]
    assert [node["hostPath"] for node in device["containerEdits"]["deviceNodes"]] == [
        f"/host{path}" for path in specs.instance_nodes(part)
    ]


def test_partitions_of_one_gpu_and_of_another_and_a_whole_gpu_go_together(specs: Built) -> None:
    parts = [specs.part("1g-10gb", 0), specs.part("1g-10gb", 6), specs.part("2g-20gb", 0, gpu=1)]
    whole = specs.whole(3)

    assert specs.nodes(*parts, whole) == [
        *map(specs.instance_nodes, parts),
        ["/dev/nvidia3", "/dev/dri/card4", "/dev/dri/renderD131"],
    ]
    assert len({path for part in parts for path in specs.instance_nodes(part)}) == 2 + 6


def test_the_nodes_follow_the_minor_of_the_gpu(specs: Built) -> None:
    part = specs.part("1g-10gb", 0)
    before = specs.nodes(part)
    specs.scene.machine.set_minors({gpu: 7 - gpu for gpu in range(8)})

    assert specs.nodes(part) == [specs.instance_nodes(part)] != before


@pytest.mark.parametrize(
    "record",
    [
        PartitionRecord("1g.10gb", 19, 0, 1, attempted=True),
        PartitionRecord("1g.10gb", 19, 0, 1, attempted=True, gpu_instance_id=7),
    ],
    ids=["without ids", "without a compute instance"],
)
def test_a_partition_that_is_not_made_never_becomes_its_whole_gpu(
    specs: Built, record: PartitionRecord
) -> None:
    held = replace(specs.part("1g-10gb", 0), record=written(record))

    with pytest.raises(ClaimBlocked, match="mig-1g-10gb-0 is not made yet"):
        specs.built(held)


def test_a_partition_that_is_gone_has_no_capabilities(specs: Built) -> None:
    part = specs.part("1g-10gb", 0)
    specs.scene.machine.reset(0)

    with pytest.raises(NodeIncomplete, match="of a MIG instance is missing"):
        specs.built(part)


def test_a_partition_on_another_board_is_refused(specs: Built) -> None:
    part = specs.part("1g-10gb", 0)
    specs.scene.machine.replace_board(0)

    with pytest.raises(HardwareChanged, match="the GPU was replaced"):
        specs.built(part)
