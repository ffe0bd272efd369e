"""What MIG makes of a GPU, as values without any I/O: profiles, placements, instances and their names.

An instance is named by its id, never by a handle: ids can be written down and read again by another
process. Slices are of two kinds: compute slices make up a profile's number, memory slices its place.
"""

from __future__ import annotations

from dataclasses import dataclass

_ATTRIBUTES: dict[int, tuple[str, ...]] = {
    0x7: ("+me",), 0x8: ("+me",), 0xA: ("+gfx",), 0xB: ("+gfx",), 0xC: ("+gfx",), 0x11: ("+gfx",),
    0xD: ("-me",), 0xE: ("-me",), 0xF: ("+me.all",), 0x10: ("+me.all",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Engines:
    """How many engines of each kind an instance has, or shares where it is a compute instance."""

    copy: int
    decoders: int
    encoders: int
    jpeg: int
    ofa: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an instance lies: a GPU instance in memory slices, a compute instance in compute slices."""

    start: int
    size: int

    def overlaps(self, other: Placement) -> bool:
        """Whether the two have a slice in common."""
        return self.start < other.start + other.size and other.start < self.start + self.size


@dataclass(frozen=True, slots=True)
class GpuInstanceProfile:
    """One kind of GPU instance that a GPU offers.

    ``index`` is the constant of nvml.h that finds it, ``id`` the number that all other calls take and
    ``nvidia-smi mig -lgip`` shows. ``slices`` counts compute slices. ``name`` is ``1g.10gb+me``;
    ``attributes`` are the suffixes of the name: ``+me`` (one of each media engine), ``+me.all`` (all of
    them), ``-me`` (none), ``+gfx`` (graphics APIs).
    """

    index: int
    id: int
    name: str
    slices: int
    memory_bytes: int
    multiprocessors: int
    engines: Engines
    most_instances: int

    @property
    def attributes(self) -> tuple[str, ...]:
        """The suffixes of the name."""
        return _ATTRIBUTES.get(self.index, ())


@dataclass(frozen=True, slots=True)
class GpuInstance:
    """A GPU instance that exists; its id is free again once it is destroyed."""

    id: int
    profile_id: int
    placement: Placement


@dataclass(frozen=True, slots=True)
class ComputeInstanceProfile:
    """One kind of compute instance that a GPU instance offers; ``engines`` are those that it shares."""

    index: int
    id: int
    slices: int
    multiprocessors: int
    engines: Engines
    most_instances: int


@dataclass(frozen=True, slots=True)
class ComputeInstance:
    """A compute instance that exists inside a GPU instance."""

    id: int
    profile_id: int
    placement: Placement


@dataclass(frozen=True, slots=True)
class MigDevice:
    """What CUDA sees: one compute instance. The UUID is the same each time at the same place of a GPU."""

    uuid: str
    parent_uuid: str
    gpu_instance_id: int
    compute_instance_id: int
    memory_bytes: int
    multiprocessors: int
    gpu_instance_slices: int
    compute_instance_slices: int
    engines: Engines


@dataclass(frozen=True, slots=True)
class MigProcess:
    """A process that uses an instance of a GPU."""

    process_id: int
    gpu_instance_id: int
    compute_instance_id: int


def profile_name(index: int, slices: int, profile_bytes: int, gpu_bytes: int) -> str:
    """The name of a profile: ``1g.10gb+me``, the same with MIG on and off and with every driver.

    NVML tells names only with MIG on. NVIDIA's own tools (go-nvlib) take the memory in whole eighths
    of the GPU, rounded up, and the GPU in whole GiB, rounded up; halves of the product round up.
    """
    eighths = -(-8 * profile_bytes // gpu_bytes)
    gigabytes = (2 * eighths * -(-gpu_bytes // 2**30) + 8) // 16
    return f"{slices}g.{gigabytes}gb{''.join(_ATTRIBUTES.get(index, ()))}"


def partition_name(profile: GpuInstanceProfile, compute_slices: int) -> str:
    """The name of a MIG device: the profile's own, or ``1c.3g.40gb`` where it is only a part of it."""
    return profile.name if compute_slices == profile.slices else f"{compute_slices}c.{profile.name}"
