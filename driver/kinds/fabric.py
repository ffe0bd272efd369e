"""The fabric partitions of a GPU, as attributes of its devices.

Names and types are those of NVIDIA's own driver: ``gpuModuleID``, and ``partition<N>`` for each size N of a
partition. A claim for N GPUs with ``matchAttribute: gpu.nvidia.com/partition<N>`` gets all GPUs of one
partition.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from driver.devices.device import AttributeValue
from driver.fabric.api import FabricPartition
from driver.hardware.gpu import Inventory
from driver.nvml.pci_address import PciAddress

PARTITION_ATTRIBUTE = re.compile(r"partition[1-9][0-9]*", re.ASCII)
"""The names of the attributes that give the partitions of a GPU."""

WITH_LINKS = frozenset({"whole", "passthrough"})
"""The kinds (by their words) whose devices come with all NVLinks of their GPUs."""

Placed = Mapping["PciAddress", Mapping[str, "AttributeValue"]]


@dataclass(frozen=True, slots=True)
class KnownGpu:
    """What identifies a GPU of the node, as far as it is known; ``module_id`` is from NVML."""

    pci: PciAddress
    uuid: str | None = None
    module_id: int | None = None


def physical_ids(partitions: Sequence[FabricPartition], gpus: Iterable[KnownGpu]) -> Mapping[PciAddress, int]:
    """The fabric manager's number of each GPU; a GPU that cannot be identified for sure is left out."""
    members = [gpu for partition in partitions for gpu in partition.gpus]
    by_uuid = {gpu.uuid: gpu.physical_id for gpu in members if gpu.uuid}
    by_pci = {gpu.pci: gpu.physical_id for gpu in members if gpu.pci}
    numbers = {gpu.physical_id for gpu in members}
    found: dict[PciAddress, int] = {}
    for gpu in gpus:
        candidates = {by_uuid.get(gpu.uuid or ""), by_pci.get(gpu.pci)} - {None}
        # A fabric manager that gives neither UUIDs nor addresses uses NVML's module ids as numbers, from
        # Hopper on (Fabric Manager User Guide, data structures).
        if not by_uuid and not by_pci and gpu.module_id in numbers:
            candidates = {gpu.module_id}
        if len(candidates) == 1:
            (number,) = candidates
            if number is not None:
                found[gpu.pci] = number
    # Two GPUs with one number are both not identified.
    taken = list(found.values())
    return {pci: number for pci, number in found.items() if taken.count(number) == 1}


def by_size(partitions: Iterable[FabricPartition], physical_id: int) -> Mapping[int, int]:
    """The GPU's partition of each size; a size of which it has several is left out."""
    found: dict[int, list[int]] = {}
    for partition in partitions:
        if physical_id in partition.physical_ids:
            found.setdefault(len(partition.gpus), []).append(partition.number)
    return {size: numbers[0] for size, numbers in sorted(found.items()) if len(numbers) == 1}


def fabric_attributes(inventory: Inventory) -> Placed:
    """The attributes of each GPU that is in a partition; empty on a node without a shared fabric.

    A GPU that NVML does not list is included if the fabric manager gives its address.
    """
    partitions = inventory.fabric.partitions
    if not partitions:
        return {}
    modules = {gpu.pci: gpu.module_id for gpu in inventory.gpus}
    uuids = {gpu.pci: gpu.uuid for gpu in inventory.gpus}
    addresses = {*modules, *(function.pci for function in inventory.pci.functions if function.is_gpu)}
    known = [KnownGpu(pci, uuids.get(pci), modules.get(pci)) for pci in sorted(addresses)]
    return {
        pci: _attributes(modules.get(pci), by_size(partitions, number))
        for pci, number in physical_ids(partitions, known).items()
    }


def in_common(placed: Placed, gpus: Sequence[PciAddress]) -> Mapping[str, AttributeValue]:
    """The attributes of a device that spans these GPUs: those that all of them have."""
    first, *others = (placed.get(pci, {}) for pci in gpus)
    return {name: value for name, value in first.items() if all(one.get(name) == value for one in others)}


def _attributes(module_id: int | None, partitions: Mapping[int, int]) -> Mapping[str, AttributeValue]:
    module: dict[str, AttributeValue] = {} if module_id is None else {"gpuModuleID": module_id}
    return module | {f"partition{size}": number for size, number in partitions.items()}
