"""What NVML tells of vGPUs, as values: the types that a host can make, and the licenses of a guest."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

_VENDOR_WORDS = ("GRID ", "NVIDIA ")


@dataclass(frozen=True, slots=True)
class VgpuType:
    """A kind of vGPU that a physical GPU supports, whether one can be made now or not.

    ``id`` is NVML's number, which the kernel uses as well. ``name`` is as NVML prints it: ``NVIDIA L40S-8Q``.
    ``most`` is how many a physical GPU takes of it, while it has no other. ``gpu_instance_profile`` is the id
    of the MIG profile that it lies on, None for one that shares the GPU by time. ``frames_per_second`` is
    its frame rate limit, None where it has none.
    """

    id: int
    name: str
    class_name: str
    memory_bytes: int
    most: int
    gpu_instance_profile: int | None = None
    frames_per_second: int | None = None

    @property
    def profile(self) -> str:
        """The name without the vendor, as people and licences use it: ``L40S-8Q``."""
        return vgpu_profile(self.name)


def vgpu_profile(name: str) -> str:
    """The profile in a name that NVML prints: ``GRID A100-10C`` is ``A100-10C``."""
    for word in _VENDOR_WORDS:
        if name.startswith(word):
            return name.removeprefix(word)
    return name


@dataclass(frozen=True, slots=True)
class LicensableFeature:
    """A feature of NVIDIA's vGPU software that takes a license (nvmlGridLicensableFeature_t).

    ``product`` is the name of what is licensed, such as ``NVIDIA Virtual Compute Server``. ``enabled`` is
    whether this machine uses the feature, ``licensed`` whether it has a license for it now. ``expires`` is
    when that ends unless it is renewed, in UTC; None where it never ends, or NVML does not tell.
    """

    product: str
    licensed: bool
    enabled: bool
    expires: datetime | None = None
