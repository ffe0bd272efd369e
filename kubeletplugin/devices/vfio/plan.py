"""Decides which functions of an IOMMU group are bound to vfio, and refuses the groups that cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.errors import ClaimBlocked, ClaimRefused, NodeIncomplete

if TYPE_CHECKING:
    from collections.abc import Collection

    from driver.hardware.functions import IommuGroup, PciFunction
    from driver.nvml.pci_address import PciAddress


def functions_to_bind(
    pci: PciAddress, group: IommuGroup | None, gpus: Collection[PciAddress]
) -> tuple[PciFunction, ...]:
    """All of the group but bridges; GPUs come first, since they are what may be in use.

    ``pci`` is the function that was asked for, ``gpus`` all GPUs that may be given away with it. A bridge
    keeps its driver: vfio counts a group as usable with pcieport or no driver there (vfio_dev_viable), and
    vfio-pci takes no bridges.

    Raises NodeIncomplete where no IOMMU guards the function, ClaimRefused for a group with GPUs that were not
    asked for, ClaimBlocked for a physical function that has virtual ones, and for a function of somebody else
    that works for the node, as a disk may: publishing keeps such a group back, but it may have changed since.
    """
    if group is None or all(one.pci != pci for one in group.functions):
        raise NodeIncomplete(
            f"{pci} is in no IOMMU group, so a virtual machine could reach all of the node's memory by it",
            "turn on the IOMMU in the firmware and for the kernel (intel_iommu=on), then restart the node; "
            "vfio's mode without an IOMMU is never used",
        )
    others = [str(one.pci) for one in group.gpus if one.pci not in gpus]
    if others:
        raise ClaimRefused(
            f"{pci} shares IOMMU group {group.number} with {', '.join(others)}, which was not asked for",
            "a group goes to one virtual machine as a whole: ask for all of its GPUs in one claim",
        )
    for one in group.endpoints:
        if one.virtual:
            raise ClaimBlocked(
                f"{one.pci} has {len(one.virtual)} virtual functions, which would be without their GPU",
                f"end what uses them, then turn them off (sriov-manage -d {one.pci}), or offer them instead",
            )
    others_at_work = (one for one in group.at_work_for_the_node if one.pci not in gpus)
    at_work = [f"{one.pci} ({one.driver})" for one in others_at_work]
    if at_work:
        raise ClaimBlocked(
            f"{pci} shares IOMMU group {group.number} with {', '.join(at_work)}, which the node would lose",
            "unbind that from its driver if nothing needs it, or move it to another slot",
        )
    return tuple(sorted(group.endpoints, key=lambda one: (not one.is_gpu, one.pci)))
