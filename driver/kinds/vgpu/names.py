"""Makes and reads the device names of vGPUs, which contain the GPU, the profile and the slot."""

from __future__ import annotations

import re
from dataclasses import dataclass

from driver.devices.names import gpu_device_name, parse_gpu_device_name
from driver.devices.region import Region
from driver.nvml.mig import Placement
from driver.nvml.pci_address import PciAddress

_VGPU = re.compile(
    r"(?P<gpu>gpu-[0-9a-f-]+)-vgpu-(?P<profile>[a-z0-9]+(?:-[a-z0-9]+)+)-(?P<slot>0|[1-9][0-9]{0,2})",
    re.ASCII,
)
_BETWEEN = re.compile(r"[^a-z0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class VgpuName:
    """What a vGPU's name says.

    ``profile`` is the profile in the form of ``profile_label``. ``slot`` is the number of the virtual
    function that the vGPU lies on; on a GPU without virtual functions, a number below the most vGPUs that it
    takes.
    """

    pci: PciAddress
    profile: str
    slot: int

    @property
    def region(self) -> Region:
        """Its slot, which no other vGPU has at the same time."""
        return Region(self.pci, Placement(self.slot, 1))


def profile_label(profile: str) -> str:
    """A profile as a part of a DNS label: ``L40S-8Q`` becomes ``l40s-8q``."""
    return _BETWEEN.sub("-", profile.lower()).strip("-")


def vgpu_device_name(pci: PciAddress, profile: str, slot: int) -> str:
    """The device name of a vGPU: ``gpu-0000-17-00-0-vgpu-l40s-8q-3``."""
    return f"{gpu_device_name(pci)}-vgpu-{profile_label(profile)}-{slot}"


def parse_vgpu_name(unshared: str) -> VgpuName | None:
    """What the name of a vGPU means; None for any other name."""
    match = _VGPU.fullmatch(unshared)
    pci = parse_gpu_device_name(match["gpu"]) if match else None
    if match is None or pci is None:
        return None
    return VgpuName(pci, match["profile"], int(match["slot"]))
