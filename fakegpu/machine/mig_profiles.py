"""Reads MIG catalogues: the MIG profiles and placements of one model of GPU, as YAML."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from driver.errors import ConfigError
from driver.nvml.mig import ComputeInstanceProfile, Engines, GpuInstanceProfile, Placement
from fakegpu.machine.fields import Fields

CATALOGUES = Path(__file__).parents[1] / "mig_profiles"
"""The catalogues that machine files name, ``<name>.yaml``."""

# Indexes of GPU instance profiles in nvml.h: 1_SLICE_REV2, which is 1g with double memory, and the profiles
# without attributes, which are 1g, 2g, 3g, 4g and 7g.
_DOUBLE_MEMORY = 0x9
_PLAIN_PROFILES = range(5)

# Slices of a compute instance -> index of its profile in nvml.h; the id is the same number. The profile in a
# 1g with double memory is 1_SLICE_REV1.
_COMPUTE_INDEXES = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
_DOUBLE_MEMORY_COMPUTE_INDEX = 7
# Slices of a GPU instance -> slices that a compute instance in it can have.
_COMPUTE_SIZES = {1: (1,), 2: (1, 2), 3: (1, 2, 3), 4: (1, 2, 4), 7: (1, 2, 3, 4, 7)}


@dataclass(frozen=True, slots=True)
class MigCatalogue:
    """The profiles of one model of GPU, sorted by index; ``placements`` are by profile id."""

    name: str
    memory_slices: int
    profiles: tuple[GpuInstanceProfile, ...]
    placements: dict[int, tuple[Placement, ...]]

    @property
    def whole(self) -> GpuInstanceProfile:
        """The profile that takes the whole GPU: its slices and engines are all that there are."""
        return max(self.profiles, key=lambda profile: profile.slices)

    def profile(self, profile_id: int) -> GpuInstanceProfile:
        """The profile with an id; raises KeyError if the GPU has no such profile."""
        for profile in self.profiles:
            if profile.id == profile_id:
                return profile
        raise KeyError(profile_id)

    def instance_id(self, placement: Placement) -> int:
        """The id of the GPU instance at a placement."""
        # The hardware fixes it by the memory span: 0 is the whole GPU, 1 and 2 are its halves, then quarters.
        return self.memory_slices // placement.size - 1 + placement.start // placement.size

    def compute_profiles(self, profile_id: int) -> tuple[ComputeInstanceProfile, ...]:
        """The compute instance profiles in a GPU instance of a profile, sorted by index; raises KeyError."""
        return tuple(self._compute_profiles(self.profile(profile_id)))

    def _compute_profiles(self, inside: GpuInstanceProfile) -> Iterator[ComputeInstanceProfile]:
        multiprocessors = {
            profile.slices: profile.multiprocessors
            for profile in self.profiles
            if profile.index in _PLAIN_PROFILES
        } | {inside.slices: inside.multiprocessors}
        for slices in _COMPUTE_SIZES[inside.slices]:
            index = _COMPUTE_INDEXES[slices]
            if inside.index == _DOUBLE_MEMORY:
                index = _DOUBLE_MEMORY_COMPUTE_INDEX
            yield ComputeInstanceProfile(
                index=index,
                id=index,
                slices=slices,
                multiprocessors=multiprocessors[slices],
                engines=inside.engines,
                most_instances=inside.slices // slices,
            )


def compute_placements(inside_slices: int, slices: int) -> tuple[Placement, ...]:
    """The placements of compute instances with so many slices in a GPU instance."""
    # Three slices start where four do.
    step = 4 if slices == 3 else slices
    return tuple(Placement(start, slices) for start in range(0, inside_slices - slices + 1, step))


def known_catalogues() -> tuple[str, ...]:
    """The names of the catalogues, sorted."""
    return tuple(sorted(path.stem for path in CATALOGUES.glob("*.yaml")))


@cache
def load_catalogue(name: str) -> MigCatalogue:
    """Read a catalogue in CATALOGUES; raises ConfigError with everything that is wrong in the file."""
    path = CATALOGUES / f"{name}.yaml"
    fields = Fields(yaml.safe_load(path.read_text(encoding="utf-8")))
    catalogue = read_catalogue(name, fields)
    if fields.errors:
        raise ConfigError(f"cannot use the catalogue {path}", "; ".join(fields.errors))
    return catalogue


def read_catalogue(name: str, fields: Fields) -> MigCatalogue:
    """The catalogue in the fields of a file; errors are collected in ``fields``."""
    memory_slices = fields.number("memory_slices", minimum=1)
    profiles: list[GpuInstanceProfile] = []
    placements: dict[int, tuple[Placement, ...]] = {}
    for item in fields.items("profiles"):
        profile = _profile(item)
        profiles.append(profile)
        size = item.number("size", minimum=1)
        placements[profile.id] = tuple(Placement(start, size) for start in item.numbers("starts"))
        item.refuse_unknown()
        if any(place.start + size > memory_slices for place in placements[profile.id]):
            item.refuse("starts", f"must leave room for the size in {memory_slices} memory slices")
    fields.refuse_unknown()
    if not profiles or len(placements) != len(profiles):
        fields.refuse("profiles", "needs profiles, each with its own id")
    by_index = sorted(profiles, key=lambda profile: profile.index)
    return MigCatalogue(name, memory_slices, tuple(by_index), placements)


def _profile(fields: Fields) -> GpuInstanceProfile:
    engines = fields.numbers("engines")
    if len(engines) != 5:
        fields.refuse("engines", "must be the numbers of copy, decoder, encoder, JPEG and OFA engines")
        engines = (0,) * 5
    return GpuInstanceProfile(
        index=fields.number("index", minimum=0),
        id=fields.number("id", minimum=0),
        name=fields.text("name", r"\d+g\.\d+gb([+-][a-z.]+)?", "profile such as 1g.10gb"),
        slices=fields.number("slices", minimum=1),
        memory_bytes=fields.number("memory_mib", minimum=1) * 2**20,
        multiprocessors=fields.number("multiprocessors", minimum=1),
        engines=Engines(*engines),
        most_instances=fields.number("most", minimum=1),
    )
