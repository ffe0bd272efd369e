"""Makes and reads the device names of partitions, which contain the GPU, the profile and the place."""

from __future__ import annotations

import re
from dataclasses import dataclass

from driver.devices.names import gpu_device_name, parse_gpu_device_name
from driver.devices.region import Region
from driver.nvml.mig import Placement
from driver.nvml.pci_address import PciAddress

_PARTITION = re.compile(
    r"(?P<gpu>gpu-[0-9a-f-]+)-(?P<kind>mig|static)-"
    r"(?P<profile>(?:[1-8]c-)?[1-8]g-[0-9]{1,4}gb(?:-no-me|-me-all|-me|-gfx)*)-"
    r"(?P<start>[0-9]{1,2})(?:-(?P<compute_start>[0-9]))?"
)
_PART = re.compile(r"(?P<slices>[1-8])c-")


@dataclass(frozen=True, slots=True)
class PartitionName:
    """What a partition's name says.

    ``profile`` is the profile in the form of ``profile_slug``. ``start`` is the first memory slice.
    ``static``: an admin made the partition; otherwise it is made when a claim is prepared.
    ``compute_start`` is the first compute slice of a compute instance that is only a part of its GPU
    instance, which only static ones are; else None.
    """

    pci: PciAddress
    profile: str
    start: int
    static: bool = False
    compute_start: int | None = None

    @property
    def compute(self) -> Placement | None:
        """The compute slices of a part of a GPU instance, None for all of it."""
        part = _PART.match(self.profile)
        if part is None or self.compute_start is None:
            return None
        return Placement(self.compute_start, int(part["slices"]))

    @property
    def gpu_instance_profile(self) -> str:
        """The profile of its GPU instance: ``3g-40gb`` for a part ``1c-3g-40gb``."""
        return _PART.sub("", self.profile, count=1)

    @property
    def region(self) -> Region:
        """The first memory slice, which is all that the name gives."""
        return self.at(Placement(self.start, 1))

    def at(self, span: Placement) -> Region:
        """Its region if it takes the memory slices of ``span``."""
        return Region(self.pci, span, self.compute)


def profile_slug(profile: str) -> str:
    """A profile as a part of a DNS label: ``1g.10gb+me`` becomes ``1g-10gb-me``; no two become the same."""
    # The profile suffix -me means no media engines, where +me adds them.
    return profile.replace("-me", "-no-me").replace("+", "-").replace(".", "-")


def partition_device_name(pci: PciAddress, profile: str, start: int) -> str:
    """The device name of a partition that is made on request: ``gpu-0000-8a-00-0-mig-1g-10gb-6``."""
    return f"{gpu_device_name(pci)}-mig-{profile_slug(profile)}-{start}"


def static_device_name(pci: PciAddress, profile: str, start: int, compute_start: int | None = None) -> str:
    """The device name of a partition that exists: ``gpu-0000-8a-00-0-static-3g-40gb-4``.

    ``compute_start`` tells the parts of one GPU instance apart: ``…-static-1c-3g-40gb-4-2``.
    """
    part = "" if compute_start is None else f"-{compute_start}"
    return f"{gpu_device_name(pci)}-static-{profile_slug(profile)}-{start}{part}"


def parse_partition_name(unshared: str) -> PartitionName | None:
    """What the name of a partition means, without the suffix for sharing; None for any other name."""
    match = _PARTITION.fullmatch(unshared)
    pci = parse_gpu_device_name(match["gpu"]) if match else None
    if match is None or pci is None:
        return None
    part = match["compute_start"]
    static = match["kind"] == "static"
    is_part = _PART.match(match["profile"]) is not None
    if (part is not None) != is_part or (part is not None and not static):
        return None
    compute_start = None if part is None else int(part)
    return PartitionName(pci, match["profile"], int(match["start"]), static, compute_start)
