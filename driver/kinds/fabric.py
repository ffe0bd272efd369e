"""In which partitions of the NVLink fabric a GPU is, as attributes of its devices.

Names and types are those of NVIDIA's own driver: ``gpuModuleID``, and ``partition<N>`` for each size N of a
partition. A claim for N GPUs that says ``matchAttribute: gpu.nvidia.com/partition<N>`` gets all of one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from driver.fabric.members import KnownGpu, by_size, physical_ids

if TYPE_CHECKING:
    from driver.devices.device import AttributeValue
    from driver.hardware.gpu import Inventory
    from driver.nvml.pci_address import PciAddress

PARTITION_ATTRIBUTE = re.compile(r"partition[1-9][0-9]*", re.ASCII)
"""The names of the attributes that say in which partition a GPU is."""

WITH_LINKS = frozenset({"whole", "passthrough"})
"""The kinds (by their words) whose devices come with all NVLinks of their GPUs."""

Placed = Mapping["PciAddress", Mapping[str, "AttributeValue"]]


def fabric_attributes(inventory: Inventory) -> Placed:
    """The attributes of each GPU that is in a partition; none on a node without a shared fabric.

    GPUs that NVML does not have are among them where the fabric manager tells their addresses.
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
    """The attributes of a device that spans these GPUs: what is true of each of them."""
    first, *others = (placed.get(pci, {}) for pci in gpus)
    return {name: value for name, value in first.items() if all(one.get(name) == value for one in others)}


def _attributes(module_id: int | None, partitions: Mapping[int, int]) -> Mapping[str, AttributeValue]:
    module: dict[str, AttributeValue] = {} if module_id is None else {"gpuModuleID": module_id}
    return module | {f"partition{size}": number for size, number in partitions.items()}
