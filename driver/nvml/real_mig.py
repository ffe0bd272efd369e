"""The MIG calls of the real NVML. They take ids and return plain values.

Handles of instances are looked up by id for each call, since somebody else may destroy an instance at any
time.

The functions of the binding come from driver.nvml.real, the only module that imports it.
"""

# ruff: noqa: D102 - the protocol of driver.nvml.mig documents these methods

from __future__ import annotations

import ctypes
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import astuple
from typing import Any

from driver.nvml.api import GPU_CALLS, Code, NvmlCallFailed, failure
from driver.nvml.gpu_handle import SUCCESS, GpuHandle, handle_number, instance_id
from driver.nvml.mig import (
    COMPUTE_PROFILE_COUNT,
    GPU_PROFILE_COUNT,
    ComputeInstance,
    ComputeInstanceProfile,
    Engines,
    GpuInstance,
    GpuInstanceProfile,
    MigActivation,
    MigDevice,
    MigProcess,
    Placement,
    profile_name,
)

_ACTIVATIONS: dict[int, MigActivation] = {
    SUCCESS: "done",
    Code.IN_USE: "in-use",
    Code.RESET_REQUIRED: "reset-required",
}
_RESETLESS_MIG_FIELD = 184
_ABSENT_PROFILE = (Code.NOT_SUPPORTED, Code.INVALID_ARGUMENT)
# Versions 2 and 3 of the profile structs need MIG mode. They add a name, which is composed here, and
# capabilities, which follow from the index.
_PROFILE_VERSION = 1


class MigProfiles:
    """The profiles of GPUs and GPU instances, as NVML's structs, remembered for one session."""

    def __init__(self) -> None:
        # NVML lists instances by profile, so every list needs the profiles. Only another driver has other
        # profiles, and reading them each time would be most of the calls of a check.
        self._known: dict[tuple[int, int | None], list[tuple[int, Any]]] = {}

    def of(
        self, gpu: int, gpu_instance_profile: int | None, read: Callable[[], list[tuple[int, Any]]]
    ) -> list[tuple[int, Any]]:
        """Those of a GPU, or of its GPU instances of one profile; they are read the first time."""
        key = (gpu, gpu_instance_profile)
        if key not in self._known:
            self._known[key] = read()
        return self._known[key]

    def forget(self) -> None:
        """Forget all: the session ends."""
        self._known.clear()


class RealMigCalls(GpuHandle):
    """The MIG calls of RealDevice."""

    _mig_profiles: MigProfiles

    @abstractmethod
    def uuid(self) -> str: ...

    @abstractmethod
    def memory_bytes(self) -> int: ...

    def set_mig_mode(self, enabled: bool) -> MigActivation:
        status = int(self._get("set_mig_mode", self._pynvml.nvmlDeviceSetMigMode, int(enabled)))
        # nvmlDeviceSetMigMode returns SUCCESS once the mode is noted. Its second status says whether it is
        # active.
        if status not in _ACTIVATIONS:
            raise failure(GPU_CALLS["set_mig_mode"], status, self._subject)
        return _ACTIVATIONS[status]

    def mig_without_reset(self) -> bool:
        function = self._pynvml.nvmlDeviceGetFieldValues
        field = self._get("mig_without_reset", function, [_RESETLESS_MIG_FIELD])[0]
        if field.nvmlReturn != SUCCESS:
            raise failure(GPU_CALLS["mig_without_reset"], int(field.nvmlReturn), self._subject)
        return bool(field.value.uiVal)

    def gpu_instance_profiles(self) -> tuple[GpuInstanceProfile, ...]:
        infos = self._profile_infos("gpu_instance_profiles")
        gpu_bytes = self.memory_bytes()
        return tuple(_gpu_instance_profile(index, info, gpu_bytes) for index, info in infos)

    def gpu_instance_placements(self, profile_id: int) -> tuple[Placement, ...]:
        function = self._pynvml.nvmlDeviceGetGpuInstancePossiblePlacements
        # The first call gives the number alone, the second fills the array.
        count = ctypes.c_uint()
        self._get("gpu_instance_placements", function, profile_id, None, ctypes.byref(count))
        array = (self._pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
        self._get("gpu_instance_placements", function, profile_id, array, ctypes.byref(count))
        return tuple(_placement(array[position]) for position in range(count.value))

    def mig_devices(self) -> tuple[MigDevice, ...]:
        parent = self.uuid()
        devices = [
            self._mig_device(handle, index, parent) for index, handle in self._mig_handles("mig_devices")
        ]
        return tuple(sorted(devices, key=lambda one: (one.gpu_instance_id, one.compute_instance_id)))

    def gpu_instances(self) -> tuple[GpuInstance, ...]:
        found = []
        function = self._pynvml.nvmlDeviceGetGpuInstances
        for _, info in self._profile_infos("gpu_instances"):
            # NVML fills the array without knowing its size: it needs room for as many as the profile can
            # have.
            array, count = (self._pynvml.c_nvmlGpuInstance_t * info.instanceCount)(), ctypes.c_uint()
            self._get("gpu_instances", function, int(info.id), array, ctypes.byref(count))
            found += [self._gpu_instance("gpu_instances", array[i]) for i in range(count.value)]
        return tuple(sorted(found, key=lambda instance: instance.id))

    def create_gpu_instance(self, profile_id: int, placement: Placement) -> GpuInstance:
        function = self._pynvml.nvmlDeviceCreateGpuInstanceWithPlacement
        # With a placement, since otherwise NVML chooses one, and the published device names a place.
        place = self._pynvml.c_nvmlGpuInstancePlacement_t(placement.start, placement.size)
        handle = self._get("create_gpu_instance", function, profile_id, ctypes.byref(place))
        return self._gpu_instance("create_gpu_instance", handle)

    def destroy_gpu_instance(self, gpu_instance_id: int) -> None:
        method, inside = "destroy_gpu_instance", _inside(gpu_instance_id)
        handle = self._gpu_instance_handle(method, gpu_instance_id)
        self._ask(method, inside, self._pynvml.nvmlGpuInstanceDestroy, handle)

    def compute_instance_profiles(self, gpu_instance_id: int) -> tuple[ComputeInstanceProfile, ...]:
        method = "compute_instance_profiles"
        handle = self._gpu_instance_handle(method, gpu_instance_id)
        infos = self._compute_profile_infos(method, handle, gpu_instance_id)
        return tuple(_compute_instance_profile(index, info) for index, info in infos)

    def compute_instances(self, gpu_instance_id: int) -> tuple[ComputeInstance, ...]:
        method, inside = "compute_instances", _inside(gpu_instance_id)
        function = self._pynvml.nvmlGpuInstanceGetComputeInstances
        handle = self._gpu_instance_handle(method, gpu_instance_id)
        found = []
        for _, info in self._compute_profile_infos(method, handle, gpu_instance_id):
            array, count = (self._pynvml.c_nvmlComputeInstance_t * info.instanceCount)(), ctypes.c_uint()
            self._ask(method, inside, function, handle, int(info.id), array, ctypes.byref(count))
            found += [self._compute_instance(method, array[i], inside) for i in range(count.value)]
        return tuple(sorted(found, key=lambda instance: instance.id))

    def create_compute_instance(self, gpu_instance_id: int, profile_id: int) -> ComputeInstance:
        method, inside = "create_compute_instance", _inside(gpu_instance_id)
        function = self._pynvml.nvmlGpuInstanceCreateComputeInstance
        handle = self._gpu_instance_handle(method, gpu_instance_id)
        return self._compute_instance(method, self._ask(method, inside, function, handle, profile_id), inside)

    def destroy_compute_instance(self, gpu_instance_id: int, compute_instance_id: int) -> None:
        method = "destroy_compute_instance"
        inside = f"{_inside(gpu_instance_id)} compute instance {compute_instance_id}"
        owner = self._gpu_instance_handle(method, gpu_instance_id)
        find = self._pynvml.nvmlGpuInstanceGetComputeInstanceById
        handle = self._ask(method, inside, find, owner, compute_instance_id)
        self._ask(method, inside, self._pynvml.nvmlComputeInstanceDestroy, handle)

    def mig_processes(self) -> tuple[MigProcess, ...]:
        found = {
            MigProcess(int(process.pid), int(process.gpuInstanceId), int(process.computeInstanceId))
            for process in self._running_processes("mig_processes")
            if instance_id(process.gpuInstanceId) is not None
        }
        return tuple(sorted(found, key=astuple))

    def _profile_infos(self, method: str) -> list[tuple[int, Any]]:
        """Index and struct of all profiles; raises NotSupported if there is none."""
        function = self._pynvml.nvmlDeviceGetGpuInstanceProfileInfo

        def read() -> list[tuple[int, Any]]:
            infos = _walk(
                GPU_PROFILE_COUNT, lambda index: self._get(method, function, index, _PROFILE_VERSION)
            )
            if not infos:
                raise failure(GPU_CALLS[method], Code.NOT_SUPPORTED, self._subject)
            return infos

        return self._mig_profiles.of(handle_number(self._handle), None, read)

    def _compute_profile_infos(
        self, method: str, gpu_instance: Any, gpu_instance_id: int
    ) -> list[tuple[int, Any]]:
        function = self._pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
        # The only engine profile of nvml.h: compute instances share the engines of their GPU instance.
        shared = self._pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED

        def ask(index: int) -> Any:
            inside = _inside(gpu_instance_id)
            return self._ask(method, inside, function, gpu_instance, index, shared, _PROFILE_VERSION)

        # GPU instances of one profile offer the same compute instances, so they are kept by profile.
        profile_id = self._gpu_instance(method, gpu_instance).profile_id
        return self._mig_profiles.of(
            handle_number(self._handle), profile_id, lambda: _walk(COMPUTE_PROFILE_COUNT, ask)
        )

    def _gpu_instance_handle(self, method: str, gpu_instance_id: int) -> Any:
        find = self._pynvml.nvmlDeviceGetGpuInstanceById
        return self._ask(method, _inside(gpu_instance_id), find, self._handle, gpu_instance_id)

    def _gpu_instance(self, method: str, handle: Any) -> GpuInstance:
        info = self._ask(method, "", self._pynvml.nvmlGpuInstanceGetInfo, handle)
        return GpuInstance(int(info.id), int(info.profileId), _placement(info.placement))

    def _compute_instance(self, method: str, handle: Any, inside: str) -> ComputeInstance:
        info = self._ask(method, inside, self._pynvml.nvmlComputeInstanceGetInfo_v2, handle)
        return ComputeInstance(int(info.id), int(info.profileId), _placement(info.placement))

    def _mig_device(self, handle: Any, index: int, parent: str) -> MigDevice:
        def ask(function: Callable[..., Any]) -> Any:
            return self._ask("mig_devices", f" MIG device {index}", function, handle)

        attributes = ask(self._pynvml.nvmlDeviceGetAttributes_v2)
        return MigDevice(
            uuid=str(ask(self._pynvml.nvmlDeviceGetUUID)),
            parent_uuid=parent,
            gpu_instance_id=int(ask(self._pynvml.nvmlDeviceGetGpuInstanceId)),
            compute_instance_id=int(ask(self._pynvml.nvmlDeviceGetComputeInstanceId)),
            # NVML says MB and means MiB.
            memory_bytes=int(attributes.memorySizeMB) * 2**20,
            multiprocessors=int(attributes.multiprocessorCount),
            compute_instance_slices=int(attributes.computeInstanceSliceCount),
            engines=_shared_engines(attributes),
        )


def _walk(count: int, ask: Callable[[int], Any]) -> list[tuple[int, Any]]:
    """Index and struct of the profiles that exist."""
    found = []
    for index in range(count):
        try:
            found.append((index, ask(index)))
        except NvmlCallFailed as error:
            # The GPU lacks this profile (NOT_SUPPORTED), or the driver is older than the index
            # (INVALID_ARGUMENT).
            if error.code not in _ABSENT_PROFILE:
                raise
    return found


def _inside(gpu_instance_id: int) -> str:
    return f" GPU instance {gpu_instance_id}"


def _placement(place: Any) -> Placement:
    return Placement(int(place.start), int(place.size))


def _gpu_instance_profile(index: int, info: Any, gpu_bytes: int) -> GpuInstanceProfile:
    memory_bytes, slices = int(info.memorySizeMB) * 2**20, int(info.sliceCount)
    return GpuInstanceProfile(
        index=index,
        id=int(info.id),
        name=profile_name(index, slices, memory_bytes, gpu_bytes),
        slices=slices,
        memory_bytes=memory_bytes,
        multiprocessors=int(info.multiprocessorCount),
        engines=Engines(
            copy=int(info.copyEngineCount),
            decoders=int(info.decoderCount),
            encoders=int(info.encoderCount),
            jpeg=int(info.jpegCount),
            ofa=int(info.ofaCount),
        ),
        most_instances=int(info.instanceCount),
    )


def _compute_instance_profile(index: int, info: Any) -> ComputeInstanceProfile:
    return ComputeInstanceProfile(
        index=index,
        id=int(info.id),
        slices=int(info.sliceCount),
        multiprocessors=int(info.multiprocessorCount),
        engines=_shared_engines(info),
        most_instances=int(info.instanceCount),
    )


def _shared_engines(info: Any) -> Engines:
    return Engines(
        copy=int(info.sharedCopyEngineCount),
        decoders=int(info.sharedDecoderCount),
        encoders=int(info.sharedEncoderCount),
        jpeg=int(info.sharedJpegCount),
        ofa=int(info.sharedOfaCount),
    )
