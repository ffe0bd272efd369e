"""The MIG part of libnvidia-ml as pynvml sees it, on top of a fake machine."""

# ruff: noqa: SLF001 - byref() keeps what it points to in _obj, and says so in its documentation

import ctypes
from typing import Any

from driver.nvml.mig import ComputeInstanceProfile, Engines
from tests.gpus import (
    ComputeInstance,
    FakeDevice,
    GpuInstance,
    GpuInstanceProfile,
    MigDevice,
    NvmlCallFailed,
    NvmlDevice,
    Placement,
)

NOT_SUPPORTED, INVALID_ARGUMENT, NOT_FOUND, INSUFFICIENT_SIZE = 3, 2, 6, 7
ACTIVATIONS = {"done": 0, "in-use": 19, "reset-required": 16}
MOST_MIG_DEVICES = 7
MIB = 2**20


class CLibraryMig:
    """Handles are numbers of what was handed out: a GPU, a MIG device, or an instance with its GPU."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        self._gpus: dict[tuple[object, int], int] = {}
        self.last_profile_index = 0x11
        self.mig_activation: int | None = None

    def _object(self, handle: Any) -> Any:
        return self._handles[int(ctypes.c_void_p.from_buffer(handle).value or 0) - 1]

    def _device(self, handle: Any) -> NvmlDevice:
        device: NvmlDevice = self._object(handle)
        return device

    def _hand_out(self, thing: object, out: Any, position: int = 0) -> None:
        self._handles.append(thing)
        ctypes.c_void_p.from_buffer(out, position * ctypes.sizeof(ctypes.c_void_p)).value = len(self._handles)

    def _hand_out_one(self, found: list[Any], out: Any) -> int | None:
        for thing in found:
            self._hand_out(thing, out._obj)
        return None if found else NOT_FOUND

    def _hand_out_gpu(self, device: FakeDevice, out: Any) -> None:
        """A GPU has one handle for a whole session."""
        key = (device._slot.pci, device._number)
        if key not in self._gpus:
            self._hand_out(device, out)
            self._gpus[key] = len(self._handles)
        ctypes.c_void_p.from_buffer(out).value = self._gpus[key]

    def device_set_mig_mode(self, handle: Any, mode: int, out: Any) -> None:
        assert mode in (0, 1)
        activation = ACTIVATIONS[self._device(handle).set_mig_mode(bool(mode))]
        out._obj.value = activation if self.mig_activation is None else self.mig_activation

    def device_get_gpu_instance_profile_info(self, handle: Any, index: int, out: Any) -> int | None:
        if index > self.last_profile_index:
            return INVALID_ARGUMENT
        for profile in self._device(handle).gpu_instance_profiles():
            if profile.index == index:
                _fill_gpu_profile(out._obj, profile)
                return None
        return NOT_SUPPORTED

    def device_get_gpu_instance_possible_placements_v2(
        self, handle: Any, profile_id: int, array: Any, count: Any
    ) -> None:
        placements = self._device(handle).gpu_instance_placements(profile_id)
        count._obj.value = len(placements)
        for position, placement in enumerate(placements if array is not None else ()):
            array[position].start, array[position].size = placement.start, placement.size

    def device_get_gpu_instances(self, handle: Any, profile_id: int, array: Any, count: Any) -> None:
        device = self._device(handle)
        found = [gi for gi in device.gpu_instances() if gi.profile_id == profile_id]
        count._obj.value = len(found)
        assert len(found) <= len(array)
        for position, instance in enumerate(reversed(found)):
            self._hand_out((device, instance), array, position)

    def device_create_gpu_instance_with_placement(
        self, handle: Any, profile_id: int, place: Any, out: Any
    ) -> None:
        device = self._device(handle)
        placement = Placement(place._obj.start, place._obj.size)
        self._hand_out((device, device.create_gpu_instance(profile_id, placement)), out._obj)

    def device_get_gpu_instance_by_id(self, handle: Any, gpu_instance_id: int, out: Any) -> int | None:
        device = self._device(handle)
        found = [(device, gi) for gi in device.gpu_instances() if gi.id == gpu_instance_id]
        return self._hand_out_one(found, out)

    def gpu_instance_get_info(self, handle: Any, out: Any) -> None:
        _fill_instance(out._obj, self._gpu_instance(handle)[1])

    def gpu_instance_destroy(self, handle: Any) -> None:
        device, instance = self._gpu_instance(handle)
        device.destroy_gpu_instance(instance.id)

    def gpu_instance_get_compute_instance_profile_info(
        self, handle: Any, index: int, engines: int, out: Any
    ) -> int | None:
        assert engines == 0
        device, instance = self._gpu_instance(handle)
        for profile in device.compute_instance_profiles(instance.id):
            if profile.index == index:
                _fill_compute_profile(out._obj, profile)
                return None
        return NOT_SUPPORTED

    def gpu_instance_get_compute_instances(
        self, handle: Any, profile_id: int, array: Any, count: Any
    ) -> None:
        device, instance = self._gpu_instance(handle)
        found = [ci for ci in device.compute_instances(instance.id) if ci.profile_id == profile_id]
        count._obj.value = len(found)
        assert len(found) <= len(array)
        for position, inside in enumerate(reversed(found)):
            self._hand_out((device, instance, inside), array, position)

    def gpu_instance_get_compute_instance_by_id(
        self, handle: Any, compute_instance_id: int, out: Any
    ) -> int | None:
        device, instance = self._gpu_instance(handle)
        inside = [one for one in device.compute_instances(instance.id) if one.id == compute_instance_id]
        return self._hand_out_one([(device, instance, one) for one in inside], out)

    def gpu_instance_create_compute_instance(self, handle: Any, profile_id: int, out: Any) -> None:
        device, instance = self._gpu_instance(handle)
        inside = device.create_compute_instance(instance.id, profile_id)
        self._hand_out((device, instance, inside), out._obj)

    def compute_instance_get_info_v2(self, handle: Any, out: Any) -> None:
        _fill_instance(out._obj, self._object(handle)[2])

    def compute_instance_destroy(self, handle: Any) -> None:
        device, instance, inside = self._object(handle)
        device.destroy_compute_instance(instance.id, inside.id)

    def device_get_max_mig_device_count(self, handle: Any, out: Any) -> None:
        # A GPU without MIG says 0; one with it keeps a place for each device that it could have.
        device = self._device(handle)
        try:
            device.mig_mode()
        except NvmlCallFailed as error:
            if error.code != NOT_SUPPORTED:
                raise
        else:
            out._obj.value = MOST_MIG_DEVICES

    def device_get_mig_device_handle_by_index(self, handle: Any, index: Any, out: Any) -> int | None:
        devices = self._device(handle).mig_devices()
        gap = MOST_MIG_DEVICES - len(devices)  # the first places are empty, as after destructions
        if index.value < gap:
            return NOT_FOUND
        self._hand_out(devices[MOST_MIG_DEVICES - 1 - index.value], out._obj)
        return None

    def device_get_gpu_instance_id(self, handle: Any, out: Any) -> None:
        out._obj.value = self._mig_device(handle).gpu_instance_id

    def device_get_compute_instance_id(self, handle: Any, out: Any) -> None:
        out._obj.value = self._mig_device(handle).compute_instance_id

    def device_get_attributes_v2(self, handle: Any, out: Any) -> None:
        device, attributes = self._mig_device(handle), out._obj
        attributes.multiprocessorCount = device.multiprocessors
        attributes.computeInstanceSliceCount = device.compute_instance_slices
        attributes.memorySizeMB = device.memory_bytes // MIB
        _fill_shared_engines(attributes, device.engines)

    def _mig_device(self, handle: Any) -> MigDevice:
        device = self._object(handle)
        assert isinstance(device, MigDevice)
        return device

    def _gpu_instance(self, handle: Any) -> tuple[NvmlDevice, GpuInstance]:
        device, instance = self._object(handle)
        return device, instance


def _fill_instance(out: Any, instance: GpuInstance | ComputeInstance) -> None:
    out.id, out.profileId = instance.id, instance.profile_id
    out.placement.start, out.placement.size = instance.placement.start, instance.placement.size


def _fill_gpu_profile(out: Any, profile: GpuInstanceProfile) -> None:
    out.id, out.sliceCount, out.instanceCount = profile.id, profile.slices, profile.most_instances
    out.multiprocessorCount = profile.multiprocessors
    out.memorySizeMB = profile.memory_bytes // MIB
    out.copyEngineCount, out.decoderCount = profile.engines.copy, profile.engines.decoders
    out.encoderCount, out.jpegCount = profile.engines.encoders, profile.engines.jpeg
    out.ofaCount = profile.engines.ofa


def _fill_compute_profile(out: Any, profile: ComputeInstanceProfile) -> None:
    out.id, out.sliceCount, out.instanceCount = profile.id, profile.slices, profile.most_instances
    out.multiprocessorCount = profile.multiprocessors
    _fill_shared_engines(out, profile.engines)


def _fill_shared_engines(out: Any, engines: Engines) -> None:
    out.sharedCopyEngineCount, out.sharedDecoderCount = engines.copy, engines.decoders
    out.sharedEncoderCount, out.sharedJpegCount = engines.encoders, engines.jpeg
    out.sharedOfaCount = engines.ofa
