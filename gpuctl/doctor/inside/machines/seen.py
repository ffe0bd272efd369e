"""What was seen of a node's kernel and driver that matters to virtual machines, frozen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from driver.hardware.functions import NOTHING_SEEN

if TYPE_CHECKING:
    from driver.hardware.functions import PciFunction, PciView
    from driver.nvml.pci_address import PciAddress

PASSTHROUGH, VGPU, IOMMUFD = "passthrough", "vgpu", "iommufd"
TO_MACHINES = (PASSTHROUGH, VGPU, IOMMUFD)
"""What a node can offer to virtual machines, and by which way to the IOMMU."""


@dataclass(frozen=True, slots=True)
class LicenseClient:
    """What is installed and configured for vGPU licenses below the driver root, or on the host.

    ``programs`` are the names of programs that only NVIDIA's vGPU software has. ``servers`` are where
    licenses come from: files with a token, and whether gridd.conf names a server.
    """

    programs: frozenset[str] = frozenset()
    servers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelSeen:
    """What the kernel tells.

    ``offers`` is what the node is to offer to virtual machines, as far as anybody said so or it can be seen.
    ``vgpus`` are the functions that say of themselves, in their config space, that they are vGPUs. ``iommus``
    are the IOMMUs that the kernel drives; ``asked_iommu`` is whether its command line asks for one.
    ``loaded`` are modules of VFIO that are there, ``installed`` those that could be loaded, None where no
    folder of modules is seen. The last two are parameters of VFIO, None where its module is not loaded.
    """

    offers: frozenset[str] = frozenset()
    pci: PciView = NOTHING_SEEN
    vgpus: frozenset[PciAddress] = frozenset()
    iommus: tuple[str, ...] = ()
    asked_iommu: bool = False
    loaded: frozenset[str] = frozenset()
    installed: frozenset[str] | None = None
    without_iommu: bool | None = None
    unsafe_interrupts: bool | None = None
    licenses: LicenseClient = field(default_factory=LicenseClient)

    @property
    def gpus(self) -> tuple[PciFunction, ...]:
        """The GPUs that are no virtual functions."""
        return self.pci.physical
