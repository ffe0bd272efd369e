"""NVML's calls about MIG, and their values: profiles, placements, instances and their names.

An instance is named by its id, never by a handle: ids can be written down and read again by another
process. Slices are of two kinds: compute slices make up a profile's number, memory slices its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

_ATTRIBUTES: dict[int, tuple[str, ...]] = {
    0x7: ("+me",), 0x8: ("+me",), 0xA: ("+gfx",), 0xB: ("+gfx",), 0xC: ("+gfx",), 0x11: ("+gfx",),
    0xD: ("-me",), 0xE: ("-me",), 0xF: ("+me.all",), 0x10: ("+me.all",),
}  # fmt: skip

GPU_PROFILE_COUNT = 0x12
"""How many indexes of GPU-instance profiles nvml.h knows (NVML_GPU_INSTANCE_PROFILE_COUNT)."""

COMPUTE_PROFILE_COUNT = 0x9
"""How many indexes of compute-instance profiles nvml.h knows (NVML_COMPUTE_INSTANCE_PROFILE_COUNT)."""

MigActivation = Literal["done", "in-use", "reset-required"]
"""The result of a change of MIG mode: ``in-use`` is worth another try once the GPU is free."""


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


class MigCalls(Protocol):
    """The MIG part of a GPU's handle; every call may raise NvmlError.

    NotSupported: the GPU has no MIG, or its mode is off (calls about instances), or this is a vGPU guest
    (calls that change something).
    Changes need root; what they end in is in NvmlCallFailed.code: IN_USE (a process, or an instance
    inside), INSUFFICIENT_RESOURCES (slices or engines are taken), INVALID_ARGUMENT (no such profile or
    placement), NO_PERMISSION. InstanceNotFound: there is no instance of that id.
    """

    def set_mig_mode(self, enabled: bool) -> MigActivation:
        """Turn MIG on or off (nvmlDeviceSetMigMode); off takes all instances with it.

        Where the GPU needs a reset for it, ``mig_mode`` shows the mode as pending until then.
        """
        ...

    def mig_without_reset(self) -> bool:
        """Whether MIG mode changes without a reset (field 184); NotSupported: the driver cannot tell."""
        ...

    def gpu_instance_profiles(self) -> tuple[GpuInstanceProfile, ...]:
        """What the GPU offers, in the order of indexes (nvmlDeviceGetGpuInstanceProfileInfo)."""
        ...

    def gpu_instance_placements(self, profile_id: int) -> tuple[Placement, ...]:
        """Where such an instance can lie on an empty GPU (nvmlDeviceGetGpuInstancePossiblePlacements_v2)."""
        ...

    def mig_devices(self) -> tuple[MigDevice, ...]:
        """All compute instances of the GPU as CUDA sees them, in the order of ids; none without MIG.

        (nvmlDeviceGetMigDeviceHandleByIndex, nvmlDeviceGetAttributes_v2)
        """
        ...

    def gpu_instances(self) -> tuple[GpuInstance, ...]:
        """All that exist, also those of others, in the order of ids (nvmlDeviceGetGpuInstances)."""
        ...

    def gpu_instance_capacity(self, profile_id: int) -> int:
        """How many more of a profile have room now (nvmlDeviceGetGpuInstanceRemainingCapacity)."""
        ...

    def create_gpu_instance(self, profile_id: int, placement: Placement) -> GpuInstance:
        """Make an instance at one place (nvmlDeviceCreateGpuInstanceWithPlacement).

        After an error, ``gpu_instances`` tells whether there is one at the place nevertheless.
        """
        ...

    def destroy_gpu_instance(self, gpu_instance_id: int) -> None:
        """Destroy an instance that has no compute instance any more (nvmlGpuInstanceDestroy)."""
        ...

    def compute_instance_profiles(self, gpu_instance_id: int) -> tuple[ComputeInstanceProfile, ...]:
        """What a GPU instance offers (nvmlGpuInstanceGetComputeInstanceProfileInfo)."""
        ...

    def compute_instances(self, gpu_instance_id: int) -> tuple[ComputeInstance, ...]:
        """Those of a GPU instance, in the order of ids (nvmlGpuInstanceGetComputeInstances)."""
        ...

    def create_compute_instance(self, gpu_instance_id: int, profile_id: int) -> ComputeInstance:
        """Make one where NVML finds room (nvmlGpuInstanceCreateComputeInstance)."""
        ...

    def destroy_compute_instance(self, gpu_instance_id: int, compute_instance_id: int) -> None:
        """Destroy one that no process uses (nvmlComputeInstanceDestroy)."""
        ...

    def mig_processes(self) -> tuple[MigProcess, ...]:
        """Who uses which instance, sorted (nvmlDeviceGet{Compute,Graphics}RunningProcesses_v3).

        None without MIG.
        """
        ...


MIG_CALLS: dict[str, str] = {
    "set_mig_mode": "nvmlDeviceSetMigMode",
    "mig_without_reset": "nvmlDeviceGetFieldValues",
    "gpu_instance_profiles": "nvmlDeviceGetGpuInstanceProfileInfo",
    "gpu_instance_placements": "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
    "mig_devices": "nvmlDeviceGetMigDeviceHandleByIndex",
    "gpu_instances": "nvmlDeviceGetGpuInstances",
    "gpu_instance_capacity": "nvmlDeviceGetGpuInstanceRemainingCapacity",
    "create_gpu_instance": "nvmlDeviceCreateGpuInstanceWithPlacement",
    "destroy_gpu_instance": "nvmlGpuInstanceDestroy",
    "compute_instance_profiles": "nvmlGpuInstanceGetComputeInstanceProfileInfo",
    "compute_instances": "nvmlGpuInstanceGetComputeInstances",
    "create_compute_instance": "nvmlGpuInstanceCreateComputeInstance",
    "destroy_compute_instance": "nvmlComputeInstanceDestroy",
    "mig_processes": "nvmlDeviceGetComputeRunningProcesses_v3",
}
"""The calls about MIG: method of MigCalls -> C function that errors name."""
