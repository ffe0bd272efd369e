"""Turns layouts into partitions: which profiles a layout has on a GPU, and where each of them lies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple

from driver.errors import ConfigError
from driver.hardware.gpu import GpuMig
from driver.nvml.mig import GpuInstanceProfile, Placement

Placed = tuple["GpuInstanceProfile", "Placement"]

_LAYOUT = re.compile(r"all-([1-8]g(?:\.[0-9]{1,4}gb)?)(?:([.+])(me\.all|me|gfx)|(-me))?", re.ASCII)
_SHORT = re.compile(r"([1-8])g((?:[+-].*)?)", re.ASCII)
_BALANCED: dict[int, tuple[str, ...]] = {7: ("1g", "1g", "2g", "3g"), 4: ("1g", "1g", "2g")}
"""Compute slices of a GPU -> what mig-parted calls all-balanced on it."""

_EMPTY_LAYOUTS = ("all-disabled", "all-enabled")


def largest_profile(mig: GpuMig) -> GpuInstanceProfile | None:
    """The profile of the whole GPU, without extra attributes if possible; None if NVML lists no profile."""
    profiles = (placed.profile for placed in mig.profiles)
    return max(profiles, key=lambda one: (one.slices, -len(one.attributes), -one.index), default=None)


def memory_slices(mig: GpuMig) -> int:
    """How many memory slices the GPU has."""
    # NVML does not give the number; the placements reach up to it.
    ends = (place.start + place.size for placed in mig.profiles for place in placed.placements)
    return max(ends, default=0)


def find_profile(name: str, mig: GpuMig) -> GpuInstanceProfile | None:
    """The profile of a name, full or short; None if the GPU has no such profile.

    A full name is ``1g.10gb+me``. A short one, ``1g+me``, means the profile with that many compute slices and
    exactly these attributes; if there are several, the one with the least memory.
    """
    profiles = [placed.profile for placed in mig.profiles]
    exact = next((profile for profile in profiles if profile.name == name), None)
    match = _SHORT.fullmatch(name)
    if exact is not None or match is None:
        return exact
    slices, attributes = int(match[1]), match[2]
    fitting = (one for one in profiles if one.slices == slices and "".join(one.attributes) == attributes)
    return min(fitting, key=lambda profile: (profile.memory_bytes, profile.index), default=None)


def layout_profiles(layout: str | Sequence[str], mig: GpuMig) -> tuple[GpuInstanceProfile, ...]:
    """The profile of each partition of a layout, which is a layout name of mig-parted or a list of profiles.

    Empty for all-enabled and all-disabled. Raises ConfigError with the profiles that the GPU lacks.
    """
    if not isinstance(layout, str):
        return _all_found(layout, mig)
    if layout in _EMPTY_LAYOUTS:
        return ()
    if layout == "all-balanced":
        whole = largest_profile(mig)
        names = _BALANCED.get(whole.slices) if whole else None
        if names is None:
            raise ConfigError("the layout all-balanced is not defined for this GPU", "list profiles instead")
        return _all_found(names, mig)
    name = profile_of_layout(layout)
    if name is None:
        raise ConfigError(f"there is no layout {layout!r}", "see docs/configuration.md")
    [profile] = _all_found((name,), mig)
    return (profile,) * profile.most_instances


def _all_found(names: Sequence[str], mig: GpuMig) -> tuple[GpuInstanceProfile, ...]:
    found = [(name, find_profile(name, mig)) for name in names]
    missing = list(dict.fromkeys(name for name, profile in found if profile is None))
    if missing:
        offered = ", ".join(placed.profile.name for placed in mig.profiles) or "none"
        raise ConfigError(f"the GPU has no profile {', '.join(missing)}", f"its profiles are {offered}")
    return tuple(profile for _, profile in found if profile is not None)


def place(wanted: Sequence[GpuInstanceProfile], mig: GpuMig) -> tuple[Placed, ...] | None:
    """A placement for each profile, sorted by start; None if they do not fit on the GPU together.

    No two have a memory slice in common. Together they need at most as many engines as the largest profile
    has, and there are at most as many of each profile as NVML allows. The result depends only on the input.
    """
    placements = {placed.profile.id: tuple(sorted(placed.placements, key=astuple)) for placed in mig.profiles}
    if any(profile.id not in placements for profile in wanted) or not _suffices(wanted, mig):
        return None
    # A small one that is placed first could take the only place of a big one.
    biggest_first = sorted(wanted, key=lambda one: (-one.slices, -one.memory_bytes, one.index))
    found = _placed(biggest_first, placements, ())
    return None if found is None else tuple(sorted(found, key=lambda one: one[1].start))


def _suffices(wanted: Sequence[GpuInstanceProfile], mig: GpuMig) -> bool:
    """Whether the GPU has enough engines for all of them, and allows that many of each profile."""
    counts = Counter(profile.id for profile in wanted)
    if any(counts[profile.id] > profile.most_instances for profile in wanted):
        return False
    whole = largest_profile(mig)
    available = astuple(whole.engines) if whole else ()
    needs = (astuple(profile.engines) for profile in wanted)
    return all(sum(kind) <= most for kind, most in zip(zip(*needs, strict=True), available, strict=False))


def _placed(
    wanted: Sequence[GpuInstanceProfile],
    placements: dict[int, tuple[Placement, ...]],
    done: tuple[Placed, ...],
) -> tuple[Placed, ...] | None:
    """The first way to place all of ``wanted`` beside those that are ``done``, by depth-first search."""
    if not wanted:
        return done
    profile = wanted[0]
    for placement in placements[profile.id]:
        if not any(placement.overlaps(other) for _, other in done):
            found = _placed(wanted[1:], placements, (*done, (profile, placement)))
            if found is not None:
                return found
    return None


def packing_order(offered: Sequence[Placed]) -> tuple[Placed, ...]:
    """Offered partitions in the order in which they are published; a scheduler takes the first that fits.

    Small profiles come first. Within a profile comes first the placement that blocks the least of bigger ones
    (the sum of the sizes of their placements that it overlaps), then the one with the higher start.
    """

    def taken_away(one: Placed) -> int:
        bigger = (there for profile, there in offered if _size((profile, there)) > _size(one))
        return sum(there.size for there in bigger if there.overlaps(one[1]))

    return tuple(sorted(offered, key=lambda one: (*_size(one), one[0].index, taken_away(one), -one[1].start)))


def _size(one: Placed) -> tuple[int, int]:
    return one[0].slices, one[1].size


def profile_of_layout(name: str) -> str | None:
    """The profile of a layout named ``all-<profile>``; None for any other name."""
    # mig-parted writes . for the + of a profile: all-1g.10gb.me has partitions of 1g.10gb+me.
    match = _LAYOUT.fullmatch(name)
    if match is None:
        return None
    size, added, attribute, removed = match.groups()
    return size + (f"+{attribute}" if added else removed or "")
