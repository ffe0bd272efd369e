"""The profile of a virtual GPU, read from NVIDIA's names, and its license: values without any I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from driver.nvml.vgpu import LicensableFeature, vgpu_profile

VgpuKind = Literal["mig-backed", "time-sliced"]

_PROFILE = re.compile(
    r"(?P<board>.+?)-(?:(?P<slices>[1-8])-)?(?P<gigabytes>[0-9]{1,4})(?P<series>[A-Z]{1,3})(?P<heads>[0-9]?)",
    re.ASCII,
)
_SHARED_INSTANCE_GIGABYTES = {"RTX Pro 6000 Blackwell DC": 24}
"""The boards on which one GPU instance can have several vGPUs, with the memory of one slice."""
_MAY_SHARE = re.compile(r".+ DC", re.ASCII)


@dataclass(frozen=True, slots=True)
class VgpuProfile:
    """A vGPU type by its name: ``A100-10C`` is time-sliced, ``A30-2-12C`` has a GPU instance.

    ``board`` is NVIDIA's short name of the physical GPU and ``gigabytes`` the nominal frame buffer.
    ``series`` is what it is licensed for (C compute, Q workstation, B desktops, A applications; CME has media
    engines). ``slices`` are those of its GPU instance, None for a time-sliced type. Source: "Virtual GPU
    Types for Supported GPUs" in NVIDIA's Virtual GPU Software User Guide.
    """

    name: str
    board: str
    slices: int | None
    gigabytes: int
    series: str

    @property
    def kind(self) -> VgpuKind:
        """Whether it has a GPU instance, or takes turns with others on the whole GPU."""
        return "time-sliced" if self.slices is None else "mig-backed"

    @property
    def isolates_memory(self) -> bool:
        """Whether it certainly has a GPU instance for itself, with memory and caches of its own."""
        if self.slices is None:
            return False
        # On graphics boards several vGPUs can be in one GPU instance, where they take turns. Only a vGPU with
        # all of the instance's memory is surely alone in it.
        if _MAY_SHARE.fullmatch(self.board) is None:
            return True
        return self.gigabytes == self.slices * _SHARED_INSTANCE_GIGABYTES.get(self.board, 0)


@dataclass(frozen=True, slots=True)
class VgpuLicense:
    """The license of one virtual GPU: the product, whether it is licensed, and when that ends (UTC).

    ``expires`` is None if it never ends, or if NVML does not report it.
    """

    product: str
    licensed: bool
    expires: datetime | None = None


def parse_profile(name: str) -> VgpuProfile | None:
    """The profile of a name, with or without the vendor in front; None if it is not a profile's name."""
    short = vgpu_profile(name)
    found = _PROFILE.fullmatch(short)
    if found is None:
        return None
    slices = None if found["slices"] is None else int(found["slices"])
    return VgpuProfile(short, found["board"], slices, int(found["gigabytes"]), found["series"])


def license_of(features: Sequence[LicensableFeature]) -> VgpuLicense | None:
    """The license that counts; None if the machine has no licensing."""
    # Only features in use matter. Before the license client has started none is in use; then all count, since
    # a vGPU always needs a license.
    used = [feature for feature in features if feature.enabled] or list(features)
    if not used:
        return None
    chosen = next((feature for feature in used if feature.licensed), used[0])
    return VgpuLicense(chosen.product, chosen.licensed, chosen.expires if chosen.licensed else None)
