"""Who is who: UUID and address count before numbers, and what cannot be told for sure is left out."""

from __future__ import annotations

from driver.fabric.api import FabricGpu, FabricPartition
from driver.kinds.fabric import KnownGpu, by_size, physical_ids
from driver.nvml.pci_address import PciAddress

ONE, TWO, THREE = (PciAddress(0, bus, 0, 0) for bus in (0x1B, 0x43, 0x52))


def partition(number: int, *gpus: FabricGpu) -> FabricPartition:
    return FabricPartition(number, gpus)


def test_module_ids_count_where_nothing_else_is_told() -> None:
    partitions = [partition(0, FabricGpu(1), FabricGpu(2))]
    known = [KnownGpu(ONE, "GPU-a", 2), KnownGpu(TWO, "GPU-b", 1), KnownGpu(THREE, "GPU-c", 9)]
    assert physical_ids(partitions, known) == {ONE: 2, TWO: 1}


def test_a_gpu_that_nvml_does_not_have_is_found_by_its_address() -> None:
    partitions = [partition(0, FabricGpu(7, pci=ONE), FabricGpu(8, "GPU-b"))]
    assert physical_ids(partitions, [KnownGpu(ONE), KnownGpu(TWO, "GPU-b", 3)]) == {ONE: 7, TWO: 8}


def test_a_number_never_overrides_an_identity() -> None:
    """As on HGX A100, where the fabric manager counts otherwise than NVML."""
    partitions = [partition(0, FabricGpu(1, "GPU-a", ONE), FabricGpu(2))]
    assert physical_ids(partitions, [KnownGpu(ONE, "GPU-a", 2), KnownGpu(TWO, "GPU-b", 2)]) == {ONE: 1}


def test_identities_that_contradict_each_other_name_nobody() -> None:
    partitions = [partition(0, FabricGpu(1, "GPU-a"), FabricGpu(2, pci=ONE))]
    assert physical_ids(partitions, [KnownGpu(ONE, "GPU-a", 1)]) == {}


def test_two_gpus_with_one_number_are_both_left_out() -> None:
    partitions = [partition(0, FabricGpu(1), FabricGpu(2))]
    known = [KnownGpu(ONE, None, 1), KnownGpu(TWO, None, 1), KnownGpu(THREE, None, 2)]
    assert physical_ids(partitions, known) == {THREE: 2}


def test_a_size_of_which_a_gpu_is_in_several_partitions_is_left_out() -> None:
    both = [partition(0, FabricGpu(1), FabricGpu(2)), partition(1, FabricGpu(1), FabricGpu(3))]
    assert by_size([*both, partition(4, FabricGpu(1))], 1) == {1: 4}
    assert by_size(both, 2) == {2: 0}
