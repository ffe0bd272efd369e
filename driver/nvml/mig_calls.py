"""The calls of NVML about MIG on one GPU; their values are those of driver.nvml.mig."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from driver.nvml.mig import (
        ComputeInstance,
        ComputeInstanceProfile,
        GpuInstance,
        GpuInstanceProfile,
        MigDevice,
        MigProcess,
        Placement,
    )

GPU_PROFILE_COUNT = 0x12
"""How many indexes of GPU-instance profiles nvml.h knows (NVML_GPU_INSTANCE_PROFILE_COUNT)."""

COMPUTE_PROFILE_COUNT = 0x9
"""How many indexes of compute-instance profiles nvml.h knows (NVML_COMPUTE_INSTANCE_PROFILE_COUNT)."""

MigActivation = Literal["done", "in-use", "reset-required"]
"""What became of a change of MIG mode: ``in-use`` is worth another try once nobody uses the GPU."""


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
        """Those that exist, whoever made them, in the order of ids (nvmlDeviceGetGpuInstances)."""
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
