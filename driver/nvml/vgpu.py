"""What NVML reports of vGPUs, as values: the types that a host can make, and the licenses of a guest."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

_VENDOR_WORDS = ("GRID ", "NVIDIA ")


@dataclass(frozen=True, slots=True)
class VgpuType:
    """A vGPU type that a physical GPU supports, whether a vGPU of it can be made now or not."""

    # NVML's number, which the kernel uses as well.
    id: int
    # As NVML prints it: ``NVIDIA L40S-8Q``.
    name: str
    class_name: str
    memory_bytes: int
    # How many fit on a physical GPU without other vGPUs.
    most: int
    # The id of the MIG profile of its GPU instance, None for a time-sliced type.
    gpu_instance_profile: int | None = None
    # None without a limit.
    frames_per_second: int | None = None

    @property
    def profile(self) -> str:
        """The name without the vendor, as people and licences use it: ``L40S-8Q``."""
        return vgpu_profile(self.name)


def vgpu_profile(name: str) -> str:
    """The profile in a name that NVML prints: ``GRID A100-10C`` is ``A100-10C``."""
    # NVML prints GRID before the profiles of older boards, such as A100 and T4, and NVIDIA before others.
    for word in _VENDOR_WORDS:
        if name.startswith(word):
            return name.removeprefix(word)
    return name


@dataclass(frozen=True, slots=True)
class LicensableFeature:
    """A feature of NVIDIA's vGPU software that takes a license (nvmlGridLicensableFeature_t).

    ``product`` is the licensed product, such as ``NVIDIA Virtual Compute Server``. ``enabled`` is whether
    this machine uses the feature, ``licensed`` whether it has a license for it now. ``expires`` is when the
    license ends unless it is renewed, in UTC; None if it never ends, or NVML does not report it.
    """

    product: str
    licensed: bool
    enabled: bool
    expires: datetime | None = None
