"""What a machine file says of PCI: the IOMMU, functions beside the GPUs, and SR-IOV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fakegpu.machine.fields import Fields

BESIDE = ("audio", "usb", "ucsi")
"""The functions that a board may have beside the GPU, as a machine file names them."""


@dataclass(frozen=True, slots=True)
class IommuSpec:
    """What the kernel can do for virtual machines.

    ``iommufd`` is whether it offers /dev/iommu and a device node for each function. ``unsafe_noiommu`` is
    vfio's parameter enable_unsafe_noiommu_mode: it then invents groups where there is no IOMMU.
    ``variant_drivers`` are vfio drivers for some device ids, such as nvgrace-gpu-vfio-pci.
    """

    present: bool = True
    iommufd: bool = True
    unsafe_noiommu: bool = False
    variant_drivers: tuple[tuple[str, tuple[int, ...]], ...] = ()


USUAL_IOMMU = IommuSpec()
"""What a machine has whose file says nothing of it."""


@dataclass(frozen=True, slots=True)
class SriovSpec:
    """The virtual functions that each GPU can have: how many, and their PCI device id."""

    total: int
    device_id: int


def iommu_spec(fields: Fields) -> IommuSpec:
    """The field ``iommu`` of a machine file."""
    spec = IommuSpec(
        present=fields.flag("present", default=True),
        iommufd=fields.flag("iommufd", default=True),
        unsafe_noiommu=fields.flag("unsafe_noiommu", default=False),
        variant_drivers=tuple(
            (one.text("name", r"[a-z0-9-]+", "name in small letters"), one.numbers("device_ids"))
            for one in (fields.items("variant_drivers") if "variant_drivers" in fields else ())
        ),
    )
    fields.refuse_unknown()
    return spec


def sriov_spec(fields: Fields) -> SriovSpec:
    """The field ``product.sriov`` of a machine file."""
    spec = SriovSpec(fields.number("total", minimum=1), fields.number("device_id", minimum=1))
    fields.refuse_unknown()
    return spec
