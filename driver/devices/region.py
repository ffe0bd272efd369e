"""What a device takes of a GPU: all of it, or a place among its memory slices."""

from __future__ import annotations

from dataclasses import dataclass

from driver.nvml.mig import Placement
from driver.nvml.pci_address import PciAddress


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a GPU that two devices cannot have at once.

    ``span`` is the place in memory slices, None for all of the GPU. ``compute`` is the place in the compute
    slices of the GPU instance at ``span``, None for all of it.
    """

    pci: PciAddress
    span: Placement | None = None
    compute: Placement | None = None

    def overlaps(self, other: Region) -> bool:
        """Whether a device in this region and a device in the other exclude each other."""
        if self.pci != other.pci:
            return False
        if self.span is None or other.span is None:
            return True
        if not self.span.overlaps(other.span):
            return False
        # Compute instances of one GPU instance share its memory slices and still do not exclude each other.
        return self.compute is None or other.compute is None or self.compute.overlaps(other.compute)


def overlap(some: tuple[Region, ...], others: tuple[Region, ...]) -> bool:
    """Whether any of the first regions overlaps any of the others."""
    return any(one.overlaps(other) for one in some for other in others)
