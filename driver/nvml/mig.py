"""NVML's calls about MIG, and their values: profiles, placements, instances and their names.

Instances are identified by id, never by handle, since another process can use an id that was written down.
There are two kinds of slices. A profile's number counts compute slices, a GPU instance's placement counts
memory slices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

# By nvml.h's index of the profile, since NVML gives names only while MIG is on.
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
    """How many engines of each kind a GPU instance has, or a compute instance shares."""

    copy: int
    decoders: int
    encoders: int
    jpeg: int
    ofa: int


@dataclass(frozen=True, slots=True)
class Placement:
    """An instance's place: a GPU instance's in memory slices, a compute instance's in compute slices."""

    start: int
    size: int

    def overlaps(self, other: Placement) -> bool:
        """Whether the two have a slice in common."""
        return self.start < other.start + other.size and other.start < self.start + self.size


@dataclass(frozen=True, slots=True)
class GpuInstanceProfile:
    """One kind of GPU instance that a GPU offers."""

    # The constant of nvml.h by which the profile is looked up.
    index: int
    # The number that all other calls take, and ``nvidia-smi mig -lgip`` shows.
    id: int
    # ``1g.10gb+me``
    name: str
    # Compute slices.
    slices: int
    memory_bytes: int
    multiprocessors: int
    engines: Engines
    # How many an empty GPU has room for.
    most_instances: int

    @property
    def attributes(self) -> tuple[str, ...]:
        """The suffixes of the name.

        ``+me``: one of each media engine; ``+me.all``: all of them; ``-me``: none; ``+gfx``: graphics APIs.
        """
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
    """What CUDA sees: one compute instance. An instance made again at the same place has the same UUID."""

    uuid: str
    parent_uuid: str
    gpu_instance_id: int
    compute_instance_id: int
    memory_bytes: int
    multiprocessors: int
    compute_instance_slices: int
    engines: Engines


@dataclass(frozen=True, slots=True)
class MigProcess:
    """A process that uses an instance of a GPU."""

    process_id: int
    gpu_instance_id: int
    compute_instance_id: int


def profile_name(index: int, slices: int, profile_bytes: int, gpu_bytes: int) -> str:
    """The name of a profile, like ``1g.10gb+me``; the same with MIG on and off and with every driver.

    The rule is that of NVIDIA's own tools (go-nvlib): the profile's memory in eighths of the GPU, rounded up,
    times the GPU's memory in GiB, rounded up; the product is rounded, halves up.
    """
    # NVML's own names exist only while MIG is on, and a device's name must not depend on the mode.
    eighths = -(-8 * profile_bytes // gpu_bytes)
    gigabytes = (2 * eighths * -(-gpu_bytes // 2**30) + 8) // 16
    return f"{slices}g.{gigabytes}gb{''.join(_ATTRIBUTES.get(index, ()))}"


def partition_name(profile: GpuInstanceProfile, compute_slices: int) -> str:
    """The name of a MIG device: the profile's, or ``1c.3g.40gb`` for a part of a GPU instance."""
    return profile.name if compute_slices == profile.slices else f"{compute_slices}c.{profile.name}"


class MigCalls(Protocol):
    """The MIG part of a GPU's handle; every call may raise NvmlError.

    NotSupported: the GPU has no MIG, or MIG mode is off (calls about instances), or this is a vGPU guest
    (calls that change something). Changes need root. If they fail, NvmlCallFailed.code says why: IN_USE (by a
    process, or there is an instance inside), INSUFFICIENT_RESOURCES (slices or engines are taken),
    INVALID_ARGUMENT (no such profile or placement), NO_PERMISSION. InstanceNotFound: there is no instance of
    that id.
    """

    def set_mig_mode(self, enabled: bool) -> MigActivation:
        """Turn MIG on or off (nvmlDeviceSetMigMode); turning it off removes all instances.

        If the GPU needs a reset for it, ``mig_mode`` shows the mode as pending until then.
        """
        ...

    def mig_without_reset(self) -> bool:
        """Whether MIG mode changes without a reset (field 184); NotSupported: the driver does not say."""
        ...

    def gpu_instance_profiles(self) -> tuple[GpuInstanceProfile, ...]:
        """The profiles of the GPU in the order of indexes (nvmlDeviceGetGpuInstanceProfileInfo)."""
        ...

    def gpu_instance_placements(self, profile_id: int) -> tuple[Placement, ...]:
        """The possible places on an empty GPU (nvmlDeviceGetGpuInstancePossiblePlacements_v2)."""
        ...

    def mig_devices(self) -> tuple[MigDevice, ...]:
        """All compute instances of the GPU as CUDA sees them, in the order of ids; empty without MIG.

        (nvmlDeviceGetMigDeviceHandleByIndex, nvmlDeviceGetAttributes_v2)
        """
        ...

    def gpu_instances(self) -> tuple[GpuInstance, ...]:
        """All that exist, whoever made them, in the order of ids (nvmlDeviceGetGpuInstances)."""
        ...

    def create_gpu_instance(self, profile_id: int, placement: Placement) -> GpuInstance:
        """Make an instance at one place (nvmlDeviceCreateGpuInstanceWithPlacement).

        It may exist even after an error: look in ``gpu_instances``.
        """
        ...

    # Instances are nested, so they are destroyed from the inside out: NVML answers IN_USE otherwise.
    def destroy_gpu_instance(self, gpu_instance_id: int) -> None:
        """Destroy an instance that has no compute instance any more (nvmlGpuInstanceDestroy)."""
        ...

    def compute_instance_profiles(self, gpu_instance_id: int) -> tuple[ComputeInstanceProfile, ...]:
        """The profiles in a GPU instance (nvmlGpuInstanceGetComputeInstanceProfileInfo)."""
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
        """Which process uses which instance, sorted; empty without MIG.

        (nvmlDeviceGetComputeRunningProcesses_v3, nvmlDeviceGetGraphicsRunningProcesses_v3)
        """
        ...


MIG_CALLS: dict[str, str] = {
    "set_mig_mode": "nvmlDeviceSetMigMode",
    "mig_without_reset": "nvmlDeviceGetFieldValues",
    "gpu_instance_profiles": "nvmlDeviceGetGpuInstanceProfileInfo",
    "gpu_instance_placements": "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
    "mig_devices": "nvmlDeviceGetMigDeviceHandleByIndex",
    "gpu_instances": "nvmlDeviceGetGpuInstances",
    "create_gpu_instance": "nvmlDeviceCreateGpuInstanceWithPlacement",
    "destroy_gpu_instance": "nvmlGpuInstanceDestroy",
    "compute_instance_profiles": "nvmlGpuInstanceGetComputeInstanceProfileInfo",
    "compute_instances": "nvmlGpuInstanceGetComputeInstances",
    "create_compute_instance": "nvmlGpuInstanceCreateComputeInstance",
    "destroy_compute_instance": "nvmlComputeInstanceDestroy",
    "mig_processes": "nvmlDeviceGetComputeRunningProcesses_v3",
}
"""The calls about MIG: method of MigCalls -> C function that errors name."""
