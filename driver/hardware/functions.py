"""What the kernel shows of PCI functions and of the IOMMU, as frozen values without any I/O.

NVML lists only the GPUs that the NVIDIA driver holds. Only the kernel shows a GPU that is bound to vfio or to
no driver, and virtual functions.
"""

from __future__ import annotations

from dataclasses import dataclass

from driver.nvml.pci_address import PciAddress

NVIDIA_VENDOR_ID = 0x10DE
NVIDIA_KERNEL_DRIVER = "nvidia"
VFIO_PCI = "vfio-pci"

# PCI class codes (pci_ids.h): base class of bridges; VGA-compatible and 3D controllers, the latter for boards
# without a display.
_BRIDGE = 0x06
_DISPLAY = frozenset({0x0300, 0x0302})


@dataclass(frozen=True, slots=True)
class PciFunction:
    """One PCI function as sysfs shows it now. Every field that may be unknown is None if it is."""

    pci: PciAddress
    vendor_id: int
    device_id: int
    # 24 bits: base class, subclass, programming interface.
    class_code: int
    # The kernel driver that is bound to it.
    driver: str | None = None
    # None if no IOMMU guards it, also if vfio made up a group without one.
    iommu_group: int | None = None
    numa_node: int | None = None
    pcie_root: str | None = None
    # The size of its memory regions together.
    addressable_bytes: int | None = None
    # The physical function of a virtual one (SR-IOV).
    physical: PciAddress | None = None
    # The virtual functions of a physical one that exist, in the order of their numbers, and the most there
    # can be.
    virtual: tuple[PciAddress, ...] = ()
    total_virtual: int = 0
    # Its name below /dev/vfio/devices, such as ``vfio3``; None without IOMMUFD or without vfio.
    vfio_device: str | None = None

    @property
    def is_bridge(self) -> bool:
        """Whether it is a bridge."""
        # A bridge may stay with its driver when the rest of its group is given to vfio
        # (Documentation/driver-api/vfio.rst).
        return self.class_code >> 16 == _BRIDGE

    @property
    def on_vfio(self) -> bool:
        """Whether vfio-pci or one of its variants is bound to it, such as nvgrace_gpu_vfio_pci."""
        # Names in sysfs have underscores or hyphens, as the module's author chose.
        return self.driver is not None and self.driver.replace("_", "-").endswith(VFIO_PCI)

    @property
    def is_gpu(self) -> bool:
        """Whether it is a display or 3D function of NVIDIA, physical or virtual."""
        return self.vendor_id == NVIDIA_VENDOR_ID and self.class_code >> 8 in _DISPLAY


@dataclass(frozen=True, slots=True)
class IommuGroup:
    """Functions that the IOMMU cannot tell apart, so vfio gives away all of them or none.

    ``functions`` are sorted by address, bridges among them.
    """

    number: int
    functions: tuple[PciFunction, ...]

    @property
    def gpus(self) -> tuple[PciFunction, ...]:
        """The GPUs among them."""
        return tuple(function for function in self.functions if function.is_gpu)

    @property
    def endpoints(self) -> tuple[PciFunction, ...]:
        """The functions that have to be bound to vfio before the group can be used: all but bridges."""
        return tuple(function for function in self.functions if not function.is_bridge)

    @property
    def used_by_the_node(self) -> tuple[PciFunction, ...]:
        """Functions of other vendors with a driver, perhaps of a disk, which the node would lose.

        It is asked when devices are published and again at prepare: functions may join a group, and drivers
        may be bound, in between.
        """
        return tuple(
            one
            for one in self.endpoints
            if one.vendor_id != NVIDIA_VENDOR_ID and one.driver is not None and not one.on_vfio
        )


@dataclass(frozen=True, slots=True)
class PciView:
    """What the kernel shows of a node's GPUs, whichever driver is bound to them.

    ``functions`` are the GPU functions, physical and virtual, sorted by address. ``groups`` are the IOMMU
    groups that contain any of them, by number. ``has_iommufd`` is whether the kernel offers /dev/iommu.
    """

    functions: tuple[PciFunction, ...] = ()
    groups: tuple[IommuGroup, ...] = ()
    has_iommufd: bool = False

    @property
    def physical(self) -> tuple[PciFunction, ...]:
        """The physical GPUs; NVML lists those that the NVIDIA driver holds, and no virtual functions."""
        return tuple(function for function in self.functions if function.physical is None)

    def function(self, pci: PciAddress) -> PciFunction | None:
        """The GPU function at an address, None where there is none."""
        return next((function for function in self.functions if function.pci == pci), None)

    def group(self, number: int | None) -> IommuGroup | None:
        """The group of this number, None where no GPU is in it."""
        return next((group for group in self.groups if group.number == number), None)


NOTHING_SEEN = PciView()
"""The view of a node whose functions were not read."""
