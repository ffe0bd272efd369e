"""Whether a layout fits on a GPU and where its partitions lie, or why not and what comes nearest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from driver.errors import ConfigError
from driver.kinds.partition.field import MOST_PARTITIONS
from driver.kinds.partition.layouts import largest_profile, layout_profiles, memory_slices, place

if TYPE_CHECKING:
    from driver.hardware.gpu import GpuMig
    from driver.kinds.partition.layouts import Placed
    from driver.nvml.mig import GpuInstanceProfile

Layout = str | tuple[str, ...]

_ENGINES = {
    "copy": "copy engines",
    "decoders": "decoders",
    "encoders": "encoders",
    "jpeg": "JPEG engines",
    "ofa": "OFA engines",
}
"""The fields of driver.nvml.mig.Engines in words."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The partitions of a layout in their places, or ``problem`` and the largest part of it that fits."""

    placed: tuple[Placed, ...]
    problem: str = ""
    nearest: tuple[Placed, ...] = ()


def read_layout(text: str) -> Layout:
    """A layout as people type it: a name of mig-parted's, or profiles with commas between them.

    Raises ConfigError for one that no GPU can have.
    """
    if text.startswith("all-"):
        return text
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(names) > MOST_PARTITIONS:
        raise ConfigError(
            f"{text!r} is no layout",
            f"name one, such as all-balanced, or 1 to {MOST_PARTITIONS} profiles: 1g,1g,2g",
        )
    return names


def named_layouts(mig: GpuMig) -> dict[str, tuple[Placed, ...]]:
    """The layouts that mig-parted has a name for and the GPU knows, and where their partitions lie."""
    names = [f"all-{one.profile.name.replace('+', '.')}" for one in mig.profiles]
    found: dict[str, tuple[Placed, ...]] = {}
    for name in (*names, "all-balanced"):
        placed = fit(name, mig).placed
        if placed:
            found[name] = placed
    return found


def fit(layout: Layout, mig: GpuMig) -> Fit:
    """Whether the layout fits on the GPU when it is empty."""
    try:
        wanted = layout_profiles(layout, mig)
    except ConfigError as error:
        return Fit((), f"{error.what}: {error.way_out}")
    placed = place(wanted, mig)
    if placed is not None:
        return Fit(placed)
    return Fit((), _problem(wanted, mig), _nearest(wanted, mig))


def _problem(wanted: Sequence[GpuInstanceProfile], mig: GpuMig) -> str:
    """Why the profiles do not fit together: the first limit that they exceed."""
    for profile, count in Counter(wanted).items():
        if count > profile.most_instances:
            return f"it wants {count} x {profile.name}, the GPU can have {profile.most_instances}"
    sizes = {one.profile.id: one.placements[0].size for one in mig.profiles if one.placements}
    slices = sum(sizes.get(profile.id, 0) for profile in wanted)
    if slices > memory_slices(mig):
        return f"it wants {slices} memory slices, the GPU has {memory_slices(mig)}"
    whole = largest_profile(mig)
    compute = sum(profile.slices for profile in wanted)
    if whole is not None and compute > whole.slices:
        return f"it wants {compute} compute slices, the GPU has {whole.slices}"
    for kind, name in _ENGINES.items():
        needed = sum(getattr(profile.engines, kind) for profile in wanted)
        there = getattr(whole.engines, kind) if whole else 0
        if needed > there:
            return f"it wants {needed} {name}, the GPU has {there}"
    starts = {one.profile.name: [place.start for place in one.placements] for one in mig.profiles}
    where = "; ".join(
        f"{name} starts at {', '.join(map(str, starts[name]))}"
        for name in dict.fromkeys(profile.name for profile in wanted)
    )
    return f"its partitions overlap wherever they lie: {where}"


def _nearest(wanted: Sequence[GpuInstanceProfile], mig: GpuMig) -> tuple[Placed, ...]:
    """What fits when as few partitions as possible are left out; of several the one with most resources."""
    for count in range(len(wanted) - 1, 0, -1):
        seen: set[tuple[int, ...]] = set()
        best: tuple[Placed, ...] = ()
        for kept in combinations(wanted, count):
            key = tuple(sorted(profile.id for profile in kept))
            if key in seen:
                continue
            seen.add(key)
            placed = place(kept, mig)
            if placed and _resources(placed) > _resources(best):
                best = placed
        if best:
            return best
    return ()


def _resources(placed: Sequence[Placed]) -> tuple[int, int]:
    """Memory first, then multiprocessors."""
    memory_bytes = sum(profile.memory_bytes for profile, _ in placed)
    return memory_bytes, sum(profile.multiprocessors for profile, _ in placed)
