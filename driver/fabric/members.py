"""Which GPU of the node is which of the fabric manager's, and in which partitions it is: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from driver.fabric.api import FabricPartition
from driver.nvml.pci_address import PciAddress


@dataclass(frozen=True, slots=True)
class KnownGpu:
    """A GPU of the node as far as it is known who it is: ``module_id`` is NVML's."""

    pci: PciAddress
    uuid: str | None = None
    module_id: int | None = None


def physical_ids(partitions: Sequence[FabricPartition], gpus: Iterable[KnownGpu]) -> Mapping[PciAddress, int]:
    """The fabric manager's number of each GPU that it has; who cannot be told for sure is left out.

    UUID and address count. Only where the fabric manager tells neither of any GPU it is one whose numbers are
    NVML's module ids (Fabric Manager User Guide, data structures): from Hopper on.
    """
    members = [gpu for partition in partitions for gpu in partition.gpus]
    by_uuid = {gpu.uuid: gpu.physical_id for gpu in members if gpu.uuid}
    by_pci = {gpu.pci: gpu.physical_id for gpu in members if gpu.pci}
    numbers = {gpu.physical_id for gpu in members}
    found: dict[PciAddress, int] = {}
    for gpu in gpus:
        told = {by_uuid.get(gpu.uuid or ""), by_pci.get(gpu.pci)} - {None}
        if not by_uuid and not by_pci and gpu.module_id in numbers:
            told = {gpu.module_id}
        if len(told) == 1:
            (number,) = told
            if number is not None:
                found[gpu.pci] = number
    taken = list(found.values())
    return {pci: number for pci, number in found.items() if taken.count(number) == 1}


def by_size(partitions: Iterable[FabricPartition], physical_id: int) -> Mapping[int, int]:
    """The partition of each size that a GPU is in; a size of which it is in several is left out."""
    found: dict[int, list[int]] = {}
    for partition in partitions:
        if physical_id in partition.physical_ids:
            found.setdefault(len(partition.gpus), []).append(partition.number)
    return {size: numbers[0] for size, numbers in sorted(found.items()) if len(numbers) == 1}
