"""What it means for the offers that the NVIDIA driver does not have a GPU: a claim has it, or somebody else.

NVML tells nothing of such a GPU, so its other forms cannot be worked out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from driver.hardware.functions import NVIDIA_KERNEL_DRIVER

if TYPE_CHECKING:
    from collections.abc import Collection

    from driver.devices.device import Taint
    from driver.hardware.functions import PciFunction
    from driver.hardware.gpu import Inventory
    from driver.nvml.pci_address import PciAddress


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something of a GPU was never told, so what is published of it already has to stand in for it.

    ``pci`` is None for whatever GPU of the node was not read. With ``whole`` nobody knows which devices the
    GPU has: what is published of it counts, and what is offered of it only where nothing is published. Else
    only some attributes of its devices are missing; with ``limits`` whether the NVIDIA driver holds
    containers to its memory is among them. ``taints`` are for devices that nobody can see. ``away``: a claim
    has the GPU in a form for which it left the NVIDIA driver, so nothing is wrong with it.
    """

    pci: PciAddress | None
    whole: bool
    taints: tuple[Taint, ...]
    away: bool = False
    limits: bool = False


def elsewhere(inventory: Inventory) -> tuple[PciFunction, ...]:
    """The physical GPUs that NVML does not have, since another kernel driver or none has them."""
    told = {gpu.pci for gpu in inventory.gpus}
    return tuple(
        function
        for function in inventory.pci.physical
        if function.driver != NVIDIA_KERNEL_DRIVER and function.pci not in told
    )


def held_by(function: PciFunction) -> str:
    """Why a GPU cannot be offered to containers: who has it instead of the NVIDIA driver."""
    if function.driver is None:
        return "no kernel driver has it"
    return f"the kernel driver {function.driver} has it, and not the NVIDIA driver"


def absent(
    inventory: Inventory,
    in_need: Collection[PciAddress],
    away: Collection[frozenset[PciAddress]],
    without_driver: Taint | None,
) -> dict[PciAddress, Doubt]:
    """The GPUs that shall come back to the NVIDIA driver: those of claims, and those that wait for one.

    All GPUs of a claim's device are away as soon as NVML does not have one of them. ``in_need`` are the GPUs
    of which something is to be offered that needs the NVIDIA driver.
    """
    told = {gpu.pci for gpu in inventory.gpus}
    gone = {function.pci for function in inventory.pci.physical} - told
    found = {
        pci: Doubt(pci, whole=True, taints=(), away=True)
        for together in away
        if not together.isdisjoint(gone)
        for pci in sorted(together)
    }
    if without_driver is not None:
        found |= {
            function.pci: Doubt(function.pci, whole=True, taints=(without_driver,))
            for function in elsewhere(inventory)
            if function.pci not in found and function.driver is None and function.pci in in_need
        }
    return found
