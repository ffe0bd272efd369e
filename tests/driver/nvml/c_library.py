"""libnvidia-ml as pynvml sees it, C signatures and all, on top of a fake machine: it tests the binding."""

# ruff: noqa: SLF001 - byref() keeps what it points to in _obj, and says so in its documentation

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pynvml

from driver.nvml.vgpu import VgpuType
from tests.driver.nvml.c_library_health import CLibraryHealth
from tests.driver.nvml.c_library_mig import CLibraryMig
from tests.gpus import (
    ComputeMode,
    FakeDevice,
    MemoryLimits,
    MigDevice,
    NoMemoryLimits,
    NvLinkEnd,
    Nvml,
    NvmlCallFailed,
    NvmlDevice,
    PciAddress,
    RealNvml,
)

# The numbers of nvml.h, written down apart from those of the binding.
ARCHITECTURES = {"Volta": 5, "Turing": 6, "Ampere": 7, "Ada Lovelace": 8, "Hopper": 9, "Blackwell": 10}
BRANDS = {"Tesla": 2, "NvidiaVCS": 9, "Nvidia": 14}
ADDRESSING = {"None": 0, "HMM": 1, "ATS": 2}
VIRTUALIZATION = {"none": 0, "passthrough": 1, "vgpu": 2, "host-vgpu": 3, "host-vsga": 4}
COMPUTE_MODES: dict[ComputeMode, int] = {"default": 0, "prohibited": 2, "exclusive-process": 3}
EXCLUSIVE_THREAD = 1
FABRIC_STATES = {"not-supported": 0, "not-started": 1, "in-progress": 2, "completed": 3}
LINK_KINDS = {"gpu": 0, "switch": 2, "other": 0xFF}
SUCCESS, INVALID_ARGUMENT, NOT_SUPPORTED, INSUFFICIENT_SIZE = 0, 2, 3, 7
FEATURE_COMPUTE, EXPIRY_INVALID, EXPIRY_VALID, EXPIRY_PERMANENT = 4, 1, 2, 4
NO_INSTANCE = 0xFFFFFFFF
NO_LIMIT = 0xFFFFFFFFFFFFFFFF


OF_GPUS: dict[str, Callable[[NvmlDevice], int | str]] = {
    "nvmlDeviceGetName": lambda gpu: gpu.name(),
    "nvmlDeviceGetMinorNumber": lambda gpu: gpu.minor(),
    "nvmlDeviceGetIndex": lambda gpu: gpu.index(),
    "nvmlDeviceGetBrand": lambda gpu: BRANDS.get(gpu.brand() or "", 0),
    "nvmlDeviceGetArchitecture": lambda gpu: ARCHITECTURES.get(gpu.architecture() or "", 0xFFFFFFFF),
    "nvmlDeviceGetAddressingMode": lambda gpu: ADDRESSING[gpu.addressing_mode() or ""],
    "nvmlDeviceGetModuleId": lambda gpu: gpu.module_id(),
    "nvmlDeviceGetVirtualizationMode": lambda gpu: VIRTUALIZATION[gpu.virtualization() or ""],
    "nvmlDeviceGetPersistenceMode": lambda gpu: int(gpu.persistence_mode()),
    "nvmlDeviceGetRetiredPagesPendingStatus": lambda gpu: int(gpu.retired_pages_pending()),
    "nvmlDeviceGetPowerUsage": lambda gpu: gpu.power_milliwatts(),
    "nvmlDeviceGetEnforcedPowerLimit": lambda gpu: gpu.power_limit_milliwatts(),
}
OF_VGPU_TYPES: dict[str, Callable[[VgpuType], int | str | None]] = {
    "nvmlVgpuTypeGetName": lambda one: one.name,
    "nvmlVgpuTypeGetClass": lambda one: one.class_name,
    "nvmlVgpuTypeGetFramebufferSize": lambda one: one.memory_bytes,
    "nvmlVgpuTypeGetGpuInstanceProfileId": lambda one: (
        NO_INSTANCE if one.gpu_instance_profile is None else one.gpu_instance_profile
    ),
    "nvmlVgpuTypeGetFrameRateLimit": lambda one: one.frames_per_second,
}


class CLibrary(CLibraryMig, CLibraryHealth):
    """Hands out functions by their C names, as ctypes.CDLL does; AttributeError for a missing symbol."""

    def __init__(self, nvml: Nvml, links: int | None = None, missing: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._nvml = nvml
        self.sets, self.samples = [], []
        self.calls: Counter[str] = Counter()
        self._links = links
        self._missing = missing
        self.fabric_status = SUCCESS
        self.further_node: int | None = None
        self.forced_compute_mode: int | None = None
        self._vgpu_types: dict[int, VgpuType] = {}
        self.license_supported = True
        self.expiry_status = EXPIRY_VALID
        self.tells_no_limits_in_numbers = False

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("nvml") or name in self._missing:
            raise AttributeError(name)
        function: Callable[..., int | None]
        if name in OF_GPUS:
            function = partial(self._tell, OF_GPUS[name], self._device)
        elif name in OF_VGPU_TYPES:
            function = partial(self._tell, OF_VGPU_TYPES[name], self._vgpu_types.__getitem__)
        else:
            function = object.__getattribute__(self, _snake(name))

        def answering(*arguments: Any) -> int:
            self.calls[name] += 1
            try:
                return function(*arguments) or SUCCESS
            except NvmlCallFailed as error:
                return error.code

        return answering

    def _tell(
        self,
        ask: Callable[[Any], int | str | None],
        find: Callable[[Any], Any],
        of: Any,
        out: Any,
        size: Any = None,
    ) -> int | None:
        """Answer with a number, or with a text for which there is room."""
        found = ask(find(of))
        if isinstance(found, str):
            out.value = found.encode()
            assert len(out.value) < getattr(size, "_obj", size).value
            return None
        if found is None:
            return NOT_SUPPORTED
        out._obj.value = found
        return None

    def init_with_flags(self, flags: int) -> None:
        assert flags == 0
        self._nvml.init()

    def shutdown(self) -> None:
        self._nvml.shutdown()

    def system_get_driver_version(self, buffer: Any, size: Any) -> None:
        buffer.value = self._nvml.driver_version().encode()
        assert len(buffer.value) < size.value

    def system_get_cuda_driver_version_v2(self, out: Any) -> None:
        major, minor = self._nvml.cuda_driver_version().split(".")
        out._obj.value = int(major) * 1000 + int(minor) * 10

    def device_get_count_v2(self, out: Any) -> None:
        out._obj.value = self._nvml.device_count()

    def device_get_handle_by_index_v2(self, index: Any, out: Any) -> None:
        self._hand_out_gpu(self._nvml.device_by_index(index.value), out._obj)

    def device_get_handle_by_pci_bus_id_v2(self, text: Any, out: Any) -> None:
        self._hand_out_gpu(self._nvml.device_by_pci(PciAddress.parse(text.value.decode())), out._obj)

    def device_get_uuid(self, handle: Any, buffer: Any, size: Any) -> None:
        thing = self._object(handle)
        uuid: str = thing.uuid if isinstance(thing, MigDevice) else thing.uuid()
        buffer.value = uuid.encode()
        assert len(buffer.value) < size.value

    def device_get_pci_info_v3(self, handle: Any, out: Any) -> None:
        _fill_pci(out._obj, self._device(handle).pci())

    def device_get_cuda_compute_capability(self, handle: Any, major: Any, minor: Any) -> None:
        major._obj.value, minor._obj.value = self._device(handle).compute_capability()

    def device_get_memory_info(self, handle: Any, out: Any) -> None:
        out._obj.total = self._device(handle).memory_bytes()

    def device_get_memory_affinity(self, handle: Any, words: int, out: Any, scope: Any) -> None:
        assert scope.value == 0
        for node in (self._device(handle).numa_node(), self.further_node):
            if node is not None:
                assert node < words * 64
                out._obj[node // 64] |= 1 << node % 64

    def device_get_nv_link_state(self, handle: Any, link: int, out: Any) -> int | None:
        up = self._links_up(handle)
        if link >= (len(up) if self._links is None else self._links):
            return INVALID_ARGUMENT
        out._obj.value = int(up[link])
        return None

    def _links_up(self, handle: Any) -> tuple[bool, ...]:
        device = self._device(handle)
        assert isinstance(device, FakeDevice)
        return device.links_up()

    def _link_end(self, handle: Any, link: int) -> NvLinkEnd:
        """Where an active link leads."""
        device = self._device(handle)
        active = [link for link, up in enumerate(self._links_up(handle)) if up]
        return device.nvlinks()[active.index(link)]

    def device_get_nv_link_remote_device_type(self, handle: Any, link: int, out: Any) -> None:
        out._obj.value = LINK_KINDS[self._link_end(handle, link).kind]

    def device_get_nv_link_remote_pci_info_v2(self, handle: Any, link: int, out: Any) -> int | None:
        remote = self._link_end(handle, link).remote
        if remote is None:
            return NOT_SUPPORTED
        _fill_pci(out._obj, remote)
        return None

    def device_get_mig_mode(self, handle: Any, current: Any, pending: Any) -> None:
        mode = self._device(handle).mig_mode()
        current._obj.value, pending._obj.value = int(mode.enabled), int(mode.pending)

    def device_get_gpu_fabric_info_v(self, handle: Any, out: Any) -> int | None:
        info = self._device(handle).fabric()
        out._obj.clusterUuid[:] = bytes.fromhex(info.cluster_uuid.replace("-", ""))
        out._obj.cliqueId = info.clique
        out._obj.state = FABRIC_STATES[info.state]
        out._obj.status = self.fabric_status
        return self.fill_fabric_health(handle, out._obj)

    def device_get_supported_vgpus(self, handle: Any, count: Any, array: Any) -> int | None:
        types = self._device(handle).vgpu_types()
        self._vgpu_types |= {one.id: one for one in types}
        too_few = count._obj.value < len(types)
        count._obj.value = len(types)
        if too_few:
            return INSUFFICIENT_SIZE
        for position, one in enumerate(types):
            array[position] = one.id
        return None

    def vgpu_type_get_max_instances(self, handle: Any, number: int, out: Any) -> None:
        assert self._vgpu_types[number] in self._device(handle).vgpu_types()
        out._obj.value = self._vgpu_types[number].most

    def device_get_grid_licensable_features_v4(self, handle: Any, out: Any) -> None:
        features, found = self._device(handle).licensable_features(), out._obj
        found.isGridLicenseSupported = int(bool(features) and self.license_supported)
        found.licensableFeaturesCount = len(features)
        for place, feature in enumerate(features):
            told = found.gridLicensableFeatures[place]
            told.featureCode, told.productName = FEATURE_COMPUTE, feature.product.encode()
            told.featureState, told.featureEnabled = int(feature.licensed), int(feature.enabled)
            told.licenseExpiry.status = EXPIRY_PERMANENT
            if feature.expires is not None:
                year, month, day, hour, minute, second = feature.expires.utctimetuple()[:6]
                expiry = told.licenseExpiry
                expiry.year, expiry.month, expiry.day = year, month, day
                expiry.hour, expiry.min, expiry.sec = hour, minute, second
                expiry.status = self.expiry_status

    def device_get_compute_mode(self, handle: Any, out: Any) -> None:
        forced, mode = self.forced_compute_mode, self._device(handle).compute_mode()
        assert mode is not None
        out._obj.value = COMPUTE_MODES[mode] if forced is None else forced

    def device_set_compute_mode(self, handle: Any, mode: Any) -> None:
        self._device(handle).set_compute_mode({v: k for k, v in COMPUTE_MODES.items()}[mode.value])

    def device_set_persistence_mode(self, handle: Any, mode: Any) -> None:
        self._device(handle).set_persistence_mode(bool(getattr(mode, "value", mode)))

    def device_set_memory_limits_v1(self, handle: Any, limits: Any) -> None:
        told = limits._obj
        self._device(handle).set_memory_limits(told.nameSpace, told.softLimit, told.hardLimit)

    def device_get_memory_limits_v1(self, handle: Any, limits: Any) -> None:
        asked = limits._obj
        try:
            found = self._device(handle).memory_limits(asked.nameSpace)
        except NoMemoryLimits:
            if not self.tells_no_limits_in_numbers:
                raise
            found = MemoryLimits(0, NO_LIMIT)
        asked.softLimit, asked.hardLimit = found.soft_bytes, found.hard_bytes
        asked.currentUsed = found.used_bytes

    def device_get_compute_running_processes_v3(self, handle: Any, count: Any, array: Any) -> int | None:
        found = self._device(handle).processes()
        count._obj.value = len(found)
        if found and array is None:
            return INSUFFICIENT_SIZE
        for position, one in enumerate(found):
            entry = array[position]
            entry.pid = one.pid
            entry.gpuInstanceId = NO_INSTANCE if one.gpu_instance is None else one.gpu_instance
            entry.computeInstanceId = NO_INSTANCE if one.compute_instance is None else one.compute_instance
            entry.usedGpuMemory = NO_LIMIT if one.memory_bytes is None else one.memory_bytes
        return None

    def device_get_graphics_running_processes_v3(self, handle: Any, count: Any, array: Any) -> int | None:
        return self.device_get_compute_running_processes_v3(handle, count, array)


def _fill_pci(out: Any, pci: PciAddress) -> None:
    out.domain, out.bus, out.device = pci.domain, pci.bus, pci.device
    out.busId = f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.0".encode()


def _snake(name: str) -> str:
    """``nvmlDeviceGetNvLinkState`` -> ``device_get_nv_link_state``; runs of capitals stay one word."""
    words = ""
    text = name.removeprefix("nvml").replace("UUID", "Uuid")
    for position, letter in enumerate(text):
        if letter.isupper() and position and text[position - 1] != "_":
            words += "_"
        words += letter.lower()
    return words


def bound(library: CLibrary) -> RealNvml:
    """The binding over a library."""
    return RealNvml(load=lambda _: library)


def opened(nvml: Nvml, index: int = 0) -> NvmlDevice:
    """A handle to a GPU in a new session."""
    nvml.init()
    return nvml.device_by_index(index)


def unload() -> None:
    """Make pynvml forget the library that it has loaded."""
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()
