"""The MIG calls of the real NVML: ids in, plain values out; handles of instances are looked up each time.

The functions of the binding come from driver.nvml.real, the only module that imports it.
"""

# ruff: noqa: D102 - the protocol of driver.nvml.mig documents these methods

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import astuple
from itertools import chain
from typing import Any, ClassVar

from driver.nvml.api import GPU_CALLS, Code, NotSupported, NvmlCallFailed, failure
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

_SUCCESS = 0
_ACTIVATIONS: dict[int, MigActivation] = {
    _SUCCESS: "done",
    Code.IN_USE: "in-use",
    Code.RESET_REQUIRED: "reset-required",
}
_RESETLESS_MIG_FIELD = 184
_NO_INSTANCE = 0xFFFFFFFF
_EMPTY_PLACE = (Code.NOT_FOUND, Code.INVALID_ARGUMENT)
_ABSENT_PROFILE = (Code.NOT_SUPPORTED, Code.INVALID_ARGUMENT)
# Versions 2 and 3 of the profile structs need MIG mode, add a name that is composed here, and
# capabilities that the index tells already.
_PROFILE_VERSION = 1


class MigProfiles:
    """The profiles that GPUs and GPU instances offer, as NVML's structs, kept for one session.

    Only another driver offers others. A list of instances has to name each profile, and to walk through the
    profiles for each list would be most of the calls of a check.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int | None], list[tuple[int, Any]]] = {}

    def of(
        self, gpu: int, gpu_instance_profile: int | None, read: Callable[[], list[tuple[int, Any]]]
    ) -> list[tuple[int, Any]]:
        """Those of a GPU, or of its GPU instances of one profile; read when they are not known."""
        key = (gpu, gpu_instance_profile)
        if key not in self._known:
            self._known[key] = read()
        return self._known[key]

    def forget(self) -> None:
        """Read all again next time: the session ends."""
        self._known.clear()


class RealMigCalls(ABC):
    """What RealDevice asks about MIG."""

    _pynvml: ClassVar[Any]
    _handle: Any
    _subject: str
    _mig_profiles: MigProfiles

    @abstractmethod
    def _get(self, method: str, function: Callable[..., Any], *arguments: object) -> Any:
        """Call a function on the GPU's handle; errors name the GPU and the method's C function."""

    @abstractmethod
    def _ask(self, method: str, inside: str, function: Callable[..., Any], *arguments: object) -> Any:
        """Call a function on other handles; ``inside`` names the part of the GPU in errors."""

    @abstractmethod
    def uuid(self) -> str: ...

    @abstractmethod
    def memory_bytes(self) -> int: ...

    def set_mig_mode(self, enabled: bool) -> MigActivation:
        status = int(self._get("set_mig_mode", self._pynvml.nvmlDeviceSetMigMode, int(enabled)))
        if status not in _ACTIVATIONS:
            raise failure(GPU_CALLS["set_mig_mode"], status, self._subject)
        return _ACTIVATIONS[status]

    def mig_without_reset(self) -> bool:
        function = self._pynvml.nvmlDeviceGetFieldValues
        field = self._get("mig_without_reset", function, [_RESETLESS_MIG_FIELD])[0]
        if field.nvmlReturn != _SUCCESS:
            raise failure(GPU_CALLS["mig_without_reset"], int(field.nvmlReturn), self._subject)
        return bool(field.value.uiVal)

    def gpu_instance_profiles(self) -> tuple[GpuInstanceProfile, ...]:
        infos = self._profile_infos("gpu_instance_profiles")
        gpu_bytes = self.memory_bytes()
        return tuple(_gpu_instance_profile(index, info, gpu_bytes) for index, info in infos)

    def gpu_instance_placements(self, profile_id: int) -> tuple[Placement, ...]:
        function = self._pynvml.nvmlDeviceGetGpuInstancePossiblePlacements
        count = ctypes.c_uint()
        self._get("gpu_instance_placements", function, profile_id, None, ctypes.byref(count))
        array = (self._pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
        self._get("gpu_instance_placements", function, profile_id, array, ctypes.byref(count))
        return tuple(_placement(array[position]) for position in range(count.value))

    def mig_devices(self) -> tuple[MigDevice, ...]:
        method, parent = "mig_devices", self.uuid()
        try:
            count = int(self._get(method, self._pynvml.nvmlDeviceGetMaxMigDeviceCount))
        except NotSupported:
            return ()
        devices = []
        for index in range(count):
            try:
                handle = self._get(method, self._pynvml.nvmlDeviceGetMigDeviceHandleByIndex, index)
            except NvmlCallFailed as error:
                if error.code not in _EMPTY_PLACE:
                    raise
                continue
            devices.append(self._mig_device(handle, index, parent))
        return tuple(sorted(devices, key=_place))

    def gpu_instances(self) -> tuple[GpuInstance, ...]:
        found = []
        function = self._pynvml.nvmlDeviceGetGpuInstances
        for _, info in self._profile_infos("gpu_instances"):
            array, count = (self._pynvml.c_nvmlGpuInstance_t * info.instanceCount)(), ctypes.c_uint()
            self._get("gpu_instances", function, int(info.id), array, ctypes.byref(count))
            found += [self._gpu_instance("gpu_instances", array[i]) for i in range(count.value)]
        return tuple(sorted(found, key=lambda instance: instance.id))

    def gpu_instance_capacity(self, profile_id: int) -> int:
        function = self._pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity
        return int(self._get("gpu_instance_capacity", function, profile_id))

    def create_gpu_instance(self, profile_id: int, placement: Placement) -> GpuInstance:
        function = self._pynvml.nvmlDeviceCreateGpuInstanceWithPlacement
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
        method = "mig_processes"
        compute = self._get(method, self._pynvml.nvmlDeviceGetComputeRunningProcesses_v3)
        try:
            graphics = self._get(method, self._pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3)
        except NotSupported:
            graphics = []
        found = {
            MigProcess(int(process.pid), int(process.gpuInstanceId), int(process.computeInstanceId))
            for process in chain(compute, graphics)
            if process.gpuInstanceId != _NO_INSTANCE
        }
        return tuple(sorted(found, key=astuple))

    def _profile_infos(self, method: str) -> list[tuple[int, Any]]:
        """Index and struct of all profiles; raises NotSupported where there is none."""
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
        shared = self._pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED

        def ask(index: int) -> Any:
            inside = _inside(gpu_instance_id)
            return self._ask(method, inside, function, gpu_instance, index, shared, _PROFILE_VERSION)

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
            memory_bytes=int(attributes.memorySizeMB) * 2**20,
            multiprocessors=int(attributes.multiprocessorCount),
            gpu_instance_slices=int(attributes.gpuInstanceSliceCount),
            compute_instance_slices=int(attributes.computeInstanceSliceCount),
            engines=_shared_engines(attributes),
        )


def handle_number(handle: Any) -> int:
    """What tells a GPU's handle from others."""
    return int(ctypes.cast(handle, ctypes.c_void_p).value or 0)


def _walk(count: int, ask: Callable[[int], Any]) -> list[tuple[int, Any]]:
    """Index and struct of the profiles that there are.

    A profile that the GPU lacks says NOT_SUPPORTED, one that the driver does not know INVALID_ARGUMENT.
    """
    found = []
    for index in range(count):
        try:
            found.append((index, ask(index)))
        except NvmlCallFailed as error:
            if error.code not in _ABSENT_PROFILE:
                raise
    return found


def _inside(gpu_instance_id: int) -> str:
    return f" GPU instance {gpu_instance_id}"


def _place(device: MigDevice) -> tuple[int, int]:
    return device.gpu_instance_id, device.compute_instance_id


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
