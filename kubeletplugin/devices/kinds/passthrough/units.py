"""Finds the GPUs of a device on the PCI bus, and refuses what cannot be passed through."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from driver.errors import ClaimRefused
from driver.hardware.pci_view import iommu_group_of, read_function
from kubeletplugin.devices.vfio.plan import functions_to_bind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from driver.hardware.functions import IommuGroup, PciFunction
    from driver.nvml.pci_address import PciAddress

_ANEW = "delete the pod, so that it is scheduled anew with a device that exists"


class Bus:
    """The functions below a root of sysfs."""

    def __init__(self, sysfs_root: Path) -> None:
        self._sysfs_root = sysfs_root

    def function(self, pci: PciAddress) -> PciFunction | None:
        """One function as it is now; None where it is not on the bus."""
        return read_function(self._sysfs_root, pci)

    def require(self, addresses: Sequence[PciAddress]) -> tuple[PciFunction, ...]:
        """The GPUs at these addresses; raises ClaimRefused where one is not there."""
        found = []
        for pci in addresses:
            function = self.function(pci)
            if function is None or not function.is_gpu:
                raise ClaimRefused(f"there is no GPU at {pci} any more", _ANEW)
            found.append(function)
        return tuple(found)

    def group_of(self, gpus: Sequence[PciFunction]) -> IommuGroup:
        """The IOMMU group of these GPUs, which has to be one, and to have no others.

        Raises NodeIncomplete where no IOMMU guards them, ClaimRefused where the groups are others than when
        the device was published, ClaimBlocked while a GPU has virtual functions.
        """
        first = gpus[0]
        group = iommu_group_of(self._sysfs_root, first.pci)
        functions_to_bind(first.pci, group, [gpu.pci for gpu in gpus])
        elsewhere = [str(gpu.pci) for gpu in gpus if gpu.iommu_group != first.iommu_group]
        if group is None or elsewhere:
            raise ClaimRefused(
                f"{', '.join(elsewhere)} is not in the IOMMU group of {first.pci} any more", _ANEW
            )
        return group

    def endpoints(self, number: int, pci: PciAddress) -> tuple[PciFunction, ...]:
        """What vfio has to have of the group of a function; empty where the function is in another group."""
        group = iommu_group_of(self._sysfs_root, pci)
        return group.endpoints if group is not None and group.number == number else ()

    def on_vfio(self, number: int, pci: PciAddress) -> bool:
        """Whether all of the group is bound to a driver of vfio's."""
        functions = self.endpoints(number, pci)
        return bool(functions) and all(one.on_vfio for one in functions)
