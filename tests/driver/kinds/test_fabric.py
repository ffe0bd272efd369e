"""In which fabric partitions a GPU is, as its devices say it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.fabric.api import FabricGpu, FabricPartition
from driver.hardware.call_effects import FABRIC_PARTITIONS
from driver.kinds.fabric import KnownGpu, by_size, in_common, physical_ids
from tests.driver.hardware.looked_at import Node
from tests.driver.mig_machines import rules
from tests.gpus import DRIVER_NAME, Gpu, Offers, PciAddress, device_faults, node_offers

ONE, TWO, THREE = (PciAddress(0, bus, 0, 0) for bus in (0x1B, 0x43, 0x52))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """Eight H100 in shared NVSwitch mode."""
    with Node.looking("hgx-h100-shared-nvswitch", tmp_path) as node:
        yield node


def offers(node: Node, rule: str = "offer: whole") -> Offers:
    return node_offers(node.discovery.snapshot(), rules(rule))


def gpu(pci: PciAddress, module_id: int | None) -> Gpu:
    return Gpu(pci, f"GPU-{pci.bus}", 0, 0, module_id=module_id)


def test_a_whole_gpu_says_its_module_and_its_partition_of_each_size(node: Node) -> None:
    found = {
        str(device.pci): {name: value for name, value in device.attributes.items() if name in NAMES}
        for device in offers(node).devices
    }
    assert found["0000:1b:00.0"] == dict(zip(NAMES, (2, 8, 3, 1, 0), strict=True))
    assert found["0000:df:00.0"] == dict(zip(NAMES, (6, 12, 5, 2, 0), strict=True))
    assert len(found) == 8


NAMES = ("gpuModuleID", "partition1", "partition2", "partition4", "partition8")


@pytest.mark.parametrize(
    "rule",
    [
        "offer: whole",
        "mig: dynamic",
        "mig: dynamic, shared: {strategy: MPS, shares: 4}",
        "offer: whole, shared: {strategy: MPS, memory: {step: 5Gi}}",
    ],
)
def test_the_api_server_takes_what_a_gpu_says_in_every_form(node: Node, rule: str) -> None:
    devices = offers(node, rule).devices
    assert {fault for device in devices for fault in device_faults(device, DRIVER_NAME)} == set()
    whole = [device for device in devices if device.attributes["type"] == "gpu"]
    assert len(whole) == 8
    assert all({"nvlinkDomain", "nvlinkMesh", *NAMES} <= device.attributes.keys() for device in whole)


def test_partitions_of_mig_say_nothing_of_it(node: Node) -> None:
    cut = [one for one in offers(node, "mig: dynamic").devices if one.attributes["type"] == "mig"]
    assert cut
    assert not any(device.attributes.keys() & set(NAMES) for device in cut)


def test_a_node_without_a_shared_fabric_says_nothing_of_it(tmp_path: Path) -> None:
    with Node.looking("hgx-h100", tmp_path) as node:
        assert not any(device.attributes.keys() & set(NAMES) for device in offers(node).devices)
        assert not offers(node).doubts
        node.machine.fabric.start(shared=True, keeps=False)
        assert all(set(NAMES) <= device.attributes.keys() for device in offers(node).devices)


def test_what_a_fabric_manager_never_told_leaves_a_doubt_of_the_attributes_alone(node: Node) -> None:
    node.machine.fabric.fail("partitions", -8)
    found = offers(node)
    assert len(found.devices) == 8
    assert {doubt.whole for doubt in found.doubts} == {False}
    assert node.discovery.snapshot().gpus[0].unanswered == {FABRIC_PARTITIONS}
    node.machine.fabric.heal()
    assert offers(node).doubts == ()


def test_a_device_of_several_gpus_says_what_all_of_them_say() -> None:
    placed = {
        ONE: {"gpuModuleID": 1, "partition1": 7, "partition2": 3},
        TWO: {"gpuModuleID": 2, "partition2": 3},
    }
    assert in_common(placed, [ONE, TWO]) == {"partition2": 3}
    assert in_common(placed, [ONE]) == placed[ONE]
    assert in_common({}, [ONE]) == {}


def partition(number: int, *gpus: FabricGpu) -> FabricPartition:
    return FabricPartition(number, gpus)


@pytest.mark.parametrize(
    ("there", "known", "found"),
    [
        # Module ids count where nothing else is told, and one that two GPUs have counts for neither.
        ((FabricGpu(1), FabricGpu(2)), (KnownGpu(ONE, "a", 2), KnownGpu(TWO, "b", 1)), {ONE: 2, TWO: 1}),
        ((FabricGpu(1), FabricGpu(2)), (KnownGpu(ONE, "a", 2), KnownGpu(THREE, "c", 9)), {ONE: 2}),
        (
            (FabricGpu(1), FabricGpu(2)),
            (KnownGpu(ONE, None, 1), KnownGpu(TWO, None, 1), KnownGpu(THREE, None, 2)),
            {THREE: 2},
        ),
        # A GPU that NVML does not have is found by its address.
        (
            (FabricGpu(7, pci=ONE), FabricGpu(8, "b")),
            (KnownGpu(ONE), KnownGpu(TWO, "b", 3)),
            {ONE: 7, TWO: 8},
        ),
        # No number overrides an identity: on HGX A100 the fabric manager counts otherwise than NVML.
        ((FabricGpu(1, "a", ONE), FabricGpu(2)), (KnownGpu(ONE, "a", 2), KnownGpu(TWO, "b", 2)), {ONE: 1}),
        # Identities that contradict each other name nobody.
        ((FabricGpu(1, "a"), FabricGpu(2, pci=ONE)), (KnownGpu(ONE, "a", 1),), {}),
    ],
)
def test_a_gpu_is_found_in_the_fabric_by_what_both_tell_of_it(
    there: tuple[FabricGpu, ...], known: tuple[KnownGpu, ...], found: dict[PciAddress, int]
) -> None:
    assert physical_ids([partition(0, *there)], known) == found


def test_a_size_of_which_a_gpu_is_in_several_partitions_is_left_out() -> None:
    both = [partition(0, FabricGpu(1), FabricGpu(2)), partition(1, FabricGpu(1), FabricGpu(3))]
    assert by_size([*both, partition(4, FabricGpu(1))], 1) == {1: 4}
    assert by_size(both, 2) == {2: 0}
