"""What a virtual GPU is: its profile, read from NVIDIA's names, and its license. Values without any I/O."""

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
"""The boards of which one GPU instance can hold several vGPUs, with the memory of one slice."""
_MAY_SHARE = re.compile(r".+ DC", re.ASCII)


@dataclass(frozen=True, slots=True)
class VgpuProfile:
    """A vGPU type by its name: ``A100-10C`` takes turns with others, ``A30-2-12C`` lies on a GPU instance.

    ``board`` is NVIDIA's short name of the physical GPU, ``gigabytes`` the nominal frame buffer, ``series``
    what it is licensed for (C compute, Q workstation, B desktops, A applications; CME has media engines).
    ``slices`` are those of the GPU instance below it, None for a time-sliced one. Source: "Virtual GPU Types
    for Supported GPUs" in NVIDIA's Virtual GPU Software User Guide.
    """

    name: str
    board: str
    slices: int | None
    gigabytes: int
    series: str

    @property
    def kind(self) -> VgpuKind:
        """Whether a GPU instance lies below it, or it takes turns with others on the whole GPU."""
        return "time-sliced" if self.slices is None else "mig-backed"

    @property
    def isolates_memory(self) -> bool:
        """Whether it surely has a GPU instance for itself, with memory and caches of its own.

        On boards for graphics several vGPUs can lie on one GPU instance, where they take turns.
        """
        if self.slices is None:
            return False
        if _MAY_SHARE.fullmatch(self.board) is None:
            return True
        return self.gigabytes == self.slices * _SHARED_INSTANCE_GIGABYTES.get(self.board, 0)


@dataclass(frozen=True, slots=True)
class VgpuLicense:
    """The license of one virtual GPU: for which product, whether it is there, and when it ends (UTC).

    ``expires`` is None where it never ends, or where NVML does not tell.
    """

    product: str
    licensed: bool
    expires: datetime | None = None


def parse_profile(name: str) -> VgpuProfile | None:
    """The profile of a name, with or without the vendor before it; None where it is no name of a profile."""
    short = vgpu_profile(name)
    found = _PROFILE.fullmatch(short)
    if found is None:
        return None
    slices = None if found["slices"] is None else int(found["slices"])
    return VgpuProfile(short, found["board"], slices, int(found["gigabytes"]), found["series"])


def license_of(features: Sequence[LicensableFeature]) -> VgpuLicense | None:
    """The license that counts; None where the machine knows no licensing.

    Only features in use matter. While none is, as before the license client has started, all do: a vGPU
    always takes a license.
    """
    used = [feature for feature in features if feature.enabled] or list(features)
    if not used:
        return None
    chosen = next((feature for feature in used if feature.licensed), used[0])
    return VgpuLicense(chosen.product, chosen.licensed, chosen.expires if chosen.licensed else None)
