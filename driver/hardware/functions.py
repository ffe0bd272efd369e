"""What the kernel tells of PCI functions and of the IOMMU: frozen values without any I/O.

NVML knows only the GPUs that the NVIDIA driver holds. Only the kernel knows a GPU that is bound to vfio or to
nothing, and a virtual function.
"""

from __future__ import annotations

from dataclasses import dataclass

from driver.nvml.pci_address import PciAddress

NVIDIA_VENDOR_ID = 0x10DE
NVIDIA_KERNEL_DRIVER = "nvidia"
VFIO_PCI = "vfio-pci"

_BRIDGE = 0x06
_DISPLAY = frozenset({0x0300, 0x0302})


@dataclass(frozen=True, slots=True)
class PciFunction:
    """One PCI function as sysfs shows it now. Every field that may be unknown is None when it is.

    ``class_code`` has 24 bits: base class, subclass, programming interface. ``driver`` is the kernel driver
    that holds it, None where none does. ``iommu_group`` is None where no IOMMU guards it, and for a group
    that vfio invented without one. ``addressable_bytes`` is what its memory regions take of the address space
    together. ``physical`` is the function that a virtual one (SR-IOV) belongs to; ``virtual`` are those of a
    physical one, in the order of their numbers, of which there can be ``total_virtual``. ``vfio_device`` is
    its name below /dev/vfio/devices (``vfio3``), None without IOMMUFD or without vfio.
    """

    pci: PciAddress
    vendor_id: int
    device_id: int
    class_code: int
    driver: str | None = None
    iommu_group: int | None = None
    numa_node: int | None = None
    pcie_root: str | None = None
    addressable_bytes: int | None = None
    physical: PciAddress | None = None
    virtual: tuple[PciAddress, ...] = ()
    total_virtual: int = 0
    vfio_device: str | None = None

    @property
    def is_bridge(self) -> bool:
        """Whether it is a bridge, which stays with its driver when its group is given to vfio."""
        return self.class_code >> 16 == _BRIDGE

    @property
    def on_vfio(self) -> bool:
        """Whether vfio-pci or one of its variants has it, such as nvgrace_gpu_vfio_pci."""
        return self.driver is not None and self.driver.replace("_", "-").endswith(VFIO_PCI)

    @property
    def is_gpu(self) -> bool:
        """Whether it is a display or 3D function of NVIDIA's, physical or virtual."""
        return self.vendor_id == NVIDIA_VENDOR_ID and self.class_code >> 8 in _DISPLAY


@dataclass(frozen=True, slots=True)
class IommuGroup:
    """Functions that the IOMMU cannot tell apart: vfio hands out all of them or none.

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
        """What has to be bound to vfio before any of the group can be used: everything but bridges."""
        return tuple(function for function in self.functions if not function.is_bridge)

    @property
    def at_work_for_the_node(self) -> tuple[PciFunction, ...]:
        """What is no part of a GPU of NVIDIA's and has a driver, a disk perhaps: the node would lose it.

        Publishing and preparing ask this alike: functions may join a group, and drivers come, in between.
        """
        return tuple(
            one
            for one in self.endpoints
            if one.vendor_id != NVIDIA_VENDOR_ID and one.driver is not None and not one.on_vfio
        )


@dataclass(frozen=True, slots=True)
class PciView:
    """What the kernel tells of a node's GPUs, whichever driver holds them.

    ``functions`` are the GPU functions, physical and virtual, sorted by address; ``groups`` the IOMMU groups
    in which any of them lies, by number. ``has_iommufd`` is whether the kernel offers /dev/iommu.
    """

    functions: tuple[PciFunction, ...] = ()
    groups: tuple[IommuGroup, ...] = ()
    has_iommufd: bool = False

    @property
    def physical(self) -> tuple[PciFunction, ...]:
        """The physical GPUs: NVML lists those that the NVIDIA driver holds, and no virtual function."""
        return tuple(function for function in self.functions if function.physical is None)

    def function(self, pci: PciAddress) -> PciFunction | None:
        """The GPU function at an address, None where there is none."""
        return next((function for function in self.functions if function.pci == pci), None)

    def group(self, number: int | None) -> IommuGroup | None:
        """The group of this number, None where no GPU is in it."""
        return next((group for group in self.groups if group.number == number), None)


NOTHING_SEEN = PciView()
"""A node whose functions were not read."""
