"""The real NVML through pynvml. It returns plain values and raises our errors.

No other module imports pynvml.
"""

# ruff: noqa: D102 - the protocols of driver.nvml.api document these methods
from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

import pynvml

from driver.nvml.api import (
    GPU_CALLS,
    NODE_CALLS,
    AddressingMode,
    Code,
    DriverNotLoaded,
    FabricFailed,
    FabricInfo,
    MigMode,
    NotSupported,
    NvLinkEnd,
    NvmlCallFailed,
    NvmlDevice,
    NvmlTimeout,
    SessionLost,
    Virtualization,
    failure,
)
from driver.nvml.health.real import RealHealthCalls
from driver.nvml.health.real_events import RealEventSet
from driver.nvml.library import Loaded, NvmlLibrary
from driver.nvml.memory_limits import NO_LIMIT_BYTES, MemoryLimits
from driver.nvml.modes import ComputeMode
from driver.nvml.pci_address import PciAddress
from driver.nvml.products import ARCHITECTURES, BRANDS
from driver.nvml.real_mig import MigProfiles, RealMigCalls
from driver.nvml.use.real import GpmSamples, RealUseCalls
from driver.nvml.vgpu import LicensableFeature, VgpuType
from driver.roots.driver_roots import DriverRoots
from driver.roots.root import SLASH

T = TypeVar("T")

# 16 words of 64 bits hold every NUMA node that Linux can have (1024).
_NODE_SET_WORDS = 16
# INVALID_GPU_INSTANCE_PROFILE_ID of nvml.h: the vGPU type is time-sliced.
_NO_PROFILE = 0xFFFFFFFF
_ADDRESSING: dict[int, AddressingMode] = {0: "None", 1: "HMM", 2: "ATS"}
_VIRTUALIZATION: dict[int, Virtualization] = {
    0: "none", 1: "passthrough", 2: "vgpu", 3: "host-vgpu", 4: "host-vsga",
}  # fmt: skip
# The binding's own NVML_GRID_LICENSE_EXPIRY_VALID is a tuple by mistake.
_EXPIRY_VALID = 2
# How long the end of a session waits for a wait for events, which notices within half a second.
_LEAVE_SECONDS = 2.0
# 1 is EXCLUSIVE_THREAD, which CUDA no longer has.
_COMPUTE_MODES: dict[ComputeMode, int] = {"default": 0, "prohibited": 2, "exclusive-process": 3}


def _ask(call: str, subject: str, function: Callable[..., Any], *arguments: object) -> Any:
    """Make one pynvml call and translate its errors into ours."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        raise failure(call, int(error.value), subject) from error


class RealNvml:
    """NVML of the driver below the current driver root (``driver.nvml.library``), by default ``/``.

    ``load`` opens a library by path or soname and raises OSError; tests pass another one than ctypes.CDLL.
    """

    def __init__(self, roots: DriverRoots | None = None, load: Callable[[str], object] = ctypes.CDLL) -> None:
        self._library = NvmlLibrary(roots or DriverRoots.fixed(SLASH), load)
        self._loaded: Loaded | None = None
        self._samples, self._mig_profiles = GpmSamples(), MigProfiles()
        self._event_sets: list[RealEventSet] = []
        self._still_open = False

    def init(self) -> None:
        # A session that could not be ended is still NVML's. A second nvmlInit would only count it up.
        if self._still_open:
            self._still_open = False
            return
        self._load_library()
        # This initialises no GPU. NVML does that with a GPU's first handle (nvml.h, nvmlInit_v2).
        _ask(NODE_CALLS["init"], "", pynvml.nvmlInitWithFlags, 0)

    def shutdown(self) -> None:
        """Close the event sets, then end the session.

        If a thread hangs in a wait, the session stays open and NvmlTimeout is raised. The next ``init`` then
        takes over the open session.
        """
        for events in self._event_sets:
            events.close()
        # NVML frees event sets with the session, while another thread may be in nvmlEventSetWait on one of
        # them. So wait for such threads first.
        while self._event_sets:
            if not self._event_sets[-1].free(_LEAVE_SECONDS):
                self._still_open = True
                raise NvmlTimeout(NODE_CALLS["wait_events"], "the node", _LEAVE_SECONDS)
            self._event_sets.pop()
        self._mig_profiles.forget()
        for sample in self._samples.take_all():
            # The memory of samples is NVML's. Whatever cannot be freed here goes with the session.
            with suppress(NvmlCallFailed):
                _ask("nvmlGpmSampleFree", "", pynvml.nvmlGpmSampleFree, sample)
        _ask(NODE_CALLS["shutdown"], "", pynvml.nvmlShutdown)

    def driver_version(self) -> str:
        return str(_ask(NODE_CALLS["driver_version"], "", pynvml.nvmlSystemGetDriverVersion))

    def cuda_driver_version(self) -> str:
        number = int(_ask(NODE_CALLS["cuda_driver_version"], "", pynvml.nvmlSystemGetCudaDriverVersion_v2))
        # 12080 is CUDA 12.8.
        return f"{number // 1000}.{number % 1000 // 10}"

    def device_count(self) -> int:
        return int(_ask(NODE_CALLS["device_count"], "", pynvml.nvmlDeviceGetCount))

    def device_by_index(self, index: int) -> RealDevice:
        subject = f"GPU {index}"
        handle = _ask(GPU_CALLS["device_by_index"], subject, pynvml.nvmlDeviceGetHandleByIndex, index)
        return RealDevice(handle, subject, self._samples, self._mig_profiles)

    def device_by_pci(self, pci: PciAddress) -> RealDevice:
        return RealDevice(_handle_at(pci), str(pci), self._samples, self._mig_profiles)

    def watch_events(self, devices: Sequence[NvmlDevice]) -> RealEventSet:
        # A process makes many sets in its life. Here is a deadline for the calls that free those before.
        self._event_sets = [one for one in self._event_sets if not one.free()]
        events = RealEventSet(pynvml, _ask, _handles_and_uuids(devices))
        self._event_sets.append(events)
        return events

    def _load_library(self) -> None:
        """Give pynvml the library to use, also if the file has changed since the last session."""
        loaded = self._library.current()
        if self._loaded is loaded and pynvml.nvmlLib is not None:
            return
        # pynvml would load the soname on its own. It also caches function pointers for ever, those of a
        # library that an upgrade has replaced included.
        with pynvml.libLoadLock:
            pynvml.nvmlLib = loaded.library
            pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - pynvml has no way to unload
        self._loaded = loaded


def _handle_at(pci: PciAddress) -> Any:
    call = GPU_CALLS["device_by_pci"]
    return _ask(call, str(pci), pynvml.nvmlDeviceGetHandleByPciBusId, str(pci))


def _pci(info: Any) -> PciAddress:
    """The address in an nvmlPciInfo_t."""
    # nvmlPciInfo_t has no function number: a GPU is always function 0 of its device.
    return PciAddress(int(info.domain), int(info.bus), int(info.device), 0)


def _handles_and_uuids(devices: Sequence[NvmlDevice]) -> Iterator[tuple[Any, str]]:
    """The handle and the UUID of each GPU; a GPU whose UUID cannot be read is left out."""
    for device in devices:
        if not isinstance(device, RealDevice):
            raise TypeError(f"{device!r} is not a GPU of the real NVML")
        try:
            yield device.handle, device.uuid()
        except (SessionLost, DriverNotLoaded):
            raise
        except NvmlCallFailed:
            continue


class RealDevice(RealMigCalls, RealHealthCalls, RealUseCalls):
    """One GPU's NVML handle; ``subject`` names the GPU in errors."""

    _pynvml = pynvml

    def __init__(self, handle: Any, subject: str, samples: GpmSamples, profiles: MigProfiles) -> None:
        self._handle, self._subject = handle, subject
        self._samples, self._mig_profiles = samples, profiles

    @property
    def handle(self) -> Any:
        """NVML's handle of the GPU."""
        return self._handle

    def _get(self, method: str, function: Callable[..., Any], *arguments: object) -> Any:
        return self._ask(method, "", function, self._handle, *arguments)

    def _ask(self, method: str, inside: str, function: Callable[..., Any], *arguments: object) -> Any:
        return _ask(GPU_CALLS[method], f"{self._subject}{inside}", function, *arguments)

    def uuid(self) -> str:
        return str(self._get("uuid", pynvml.nvmlDeviceGetUUID))

    def minor(self) -> int:
        return int(self._get("minor", pynvml.nvmlDeviceGetMinorNumber))

    def index(self) -> int:
        return int(self._get("index", pynvml.nvmlDeviceGetIndex))

    def pci(self) -> PciAddress:
        return _pci(self._get("pci", pynvml.nvmlDeviceGetPciInfo_v3))

    def name(self) -> str:
        return str(self._get("name", pynvml.nvmlDeviceGetName))

    def brand(self) -> str | None:
        return BRANDS.get(int(self._get("brand", pynvml.nvmlDeviceGetBrand)))

    def architecture(self) -> str | None:
        return ARCHITECTURES.get(int(self._get("architecture", pynvml.nvmlDeviceGetArchitecture)))

    def compute_capability(self) -> tuple[int, int]:
        major, minor = self._get("compute_capability", pynvml.nvmlDeviceGetCudaComputeCapability)
        return int(major), int(minor)

    def memory_bytes(self) -> int:
        return int(self._get("memory_bytes", pynvml.nvmlDeviceGetMemoryInfo).total)

    def set_memory_limits(self, cgroup: str, soft_bytes: int, hard_bytes: int) -> None:
        limits = pynvml.c_nvmlSetMemoryLimits_v1_t(os.fsencode(cgroup), soft_bytes, hard_bytes)
        function = pynvml.nvmlDeviceSetMemoryLimits_v1
        self._ask("set_memory_limits", f" for {cgroup}", function, self._handle, limits)

    def memory_limits(self, cgroup: str) -> MemoryLimits:
        limits = pynvml.c_nvmlGetMemoryLimits_v1_t(os.fsencode(cgroup))
        function = pynvml.nvmlDeviceGetMemoryLimits_v1
        self._ask("memory_limits", f" for {cgroup}", function, self._handle, limits)
        found = MemoryLimits(int(limits.softLimit), int(limits.hardLimit), int(limits.currentUsed))
        # These are the values that clear limits (nvml.h), so they mean the same as NOT_FOUND.
        if (found.soft_bytes, found.hard_bytes) == (0, NO_LIMIT_BYTES):
            call = GPU_CALLS["memory_limits"]
            raise failure(call, Code.NOT_FOUND, f"{self._subject} for {cgroup}")
        return found

    def addressing_mode(self) -> AddressingMode | None:
        return _ADDRESSING.get(int(self._get("addressing_mode", pynvml.nvmlDeviceGetAddressingMode)))

    def numa_node(self) -> int:
        scope = pynvml.NVML_AFFINITY_SCOPE_NODE
        words = self._get("numa_node", pynvml.nvmlDeviceGetMemoryAffinity, _NODE_SET_WORDS, scope)
        # The binding gives words of 64 bits, the lowest nodes first.
        mask = sum(int(word) << 64 * position for position, word in enumerate(words))
        if mask.bit_count() != 1:
            raise NotSupported(GPU_CALLS["numa_node"], Code.NOT_SUPPORTED, self._subject)
        return mask.bit_length() - 1

    def nvlinks(self) -> tuple[NvLinkEnd, ...]:
        found_any, ends = False, []
        # NVML has no count of links. A link that the GPU lacks is NOT_SUPPORTED, a number past its last link
        # INVALID_ARGUMENT.
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            try:
                active = self._get("nvlinks", pynvml.nvmlDeviceGetNvLinkState, link)
            except NotSupported:
                continue
            except NvmlCallFailed as error:
                if error.code == Code.INVALID_ARGUMENT:
                    break
                raise
            found_any = True
            if active:
                ends.append(self._link_end(link))
        if not found_any:
            raise NotSupported(GPU_CALLS["nvlinks"], Code.NOT_SUPPORTED, self._subject)
        return tuple(ends)

    def _link_end(self, link: int) -> NvLinkEnd:
        kind = self._get("nvlinks", pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, link)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            return NvLinkEnd("switch")
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_GPU:
            return NvLinkEnd("gpu", _pci(self._get("nvlinks", pynvml.nvmlDeviceGetNvLinkRemotePciInfo, link)))
        return NvLinkEnd("other")

    def mig_mode(self) -> MigMode:
        current, pending = self._get("mig_mode", pynvml.nvmlDeviceGetMigMode)
        return MigMode(enabled=bool(current), pending=bool(pending))

    def fabric(self) -> FabricInfo:
        info = pynvml.c_nvmlGpuFabricInfo_v2_t()
        self._get("fabric", pynvml.nvmlDeviceGetGpuFabricInfoV, ctypes.byref(info))
        cluster, clique = str(UUID(bytes=bytes(info.clusterUuid))), int(info.cliqueId)
        match int(info.state):
            case pynvml.NVML_GPU_FABRIC_STATE_COMPLETED:
                # The status is that of the fabric and counts only once it is COMPLETED.
                if info.status != pynvml.NVML_SUCCESS:
                    raise FabricFailed(int(info.status), self._subject)
                return FabricInfo("completed", cluster, clique)
            case pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS:
                return FabricInfo("in-progress", cluster, clique)
            case pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED:
                return FabricInfo("not-started", cluster, clique)
            case _:
                return FabricInfo("not-supported", cluster, clique)

    def module_id(self) -> int:
        return int(self._get("module_id", pynvml.nvmlDeviceGetModuleId, ctypes.c_uint()))

    def virtualization(self) -> Virtualization | None:
        mode = self._get("virtualization", pynvml.nvmlDeviceGetVirtualizationMode)
        return _VIRTUALIZATION.get(int(mode))

    def vgpu_types(self) -> tuple[VgpuType, ...]:
        ids = sorted(map(int, self._get("vgpu_types", pynvml.nvmlDeviceGetSupportedVgpus)))
        return tuple(self._vgpu_type(number) for number in ids)

    def _vgpu_type(self, number: int) -> VgpuType:
        def ask(function: Callable[..., Any], *arguments: object) -> Any:
            return self._ask("vgpu_types", f" type {number}", function, *arguments)

        profile = int(ask(pynvml.nvmlVgpuTypeGetGpuInstanceProfileId, number))
        try:
            # 0 and NOT_SUPPORTED both mean that the type has no limit.
            frames = int(ask(pynvml.nvmlVgpuTypeGetFrameRateLimit, number)) or None
        except NotSupported:
            frames = None
        return VgpuType(
            number,
            str(ask(pynvml.nvmlVgpuTypeGetName, number)),
            str(ask(pynvml.nvmlVgpuTypeGetClass, number)),
            int(ask(pynvml.nvmlVgpuTypeGetFramebufferSize, number)),
            int(ask(pynvml.nvmlVgpuTypeGetMaxInstances, self._handle, number)),
            None if profile == _NO_PROFILE else profile,
            frames,
        )

    def licensable_features(self) -> tuple[LicensableFeature, ...]:
        # The binding has the structure and no function for the call.
        found = pynvml.c_nvmlGridLicensableFeatures_v4_t()
        self._get("licensable_features", _licensable_features, found)
        if not found.isGridLicenseSupported:
            return ()
        # Trust the array's length more than the count: the memory behind it is not ours.
        count = min(found.licensableFeaturesCount, len(found.gridLicensableFeatures))
        return tuple(_licensable_feature(found.gridLicensableFeatures[place]) for place in range(count))

    def compute_mode(self) -> ComputeMode | None:
        number = int(self._get("compute_mode", pynvml.nvmlDeviceGetComputeMode))
        return next((mode for mode, known in _COMPUTE_MODES.items() if known == number), None)

    def set_compute_mode(self, mode: ComputeMode) -> None:
        self._get("set_compute_mode", pynvml.nvmlDeviceSetComputeMode, _COMPUTE_MODES[mode])

    def persistence_mode(self) -> bool:
        return bool(self._get("persistence_mode", pynvml.nvmlDeviceGetPersistenceMode))

    def set_persistence_mode(self, on: bool) -> None:
        self._get("set_persistence_mode", pynvml.nvmlDeviceSetPersistenceMode, int(on))

    def process_ids(self) -> tuple[int, ...]:
        return tuple(sorted({int(process.pid) for process in self._running_processes("process_ids")}))


def _licensable_features(handle: Any, found: Any) -> None:
    """Call a function that the binding does not wrap; raises the binding's NVMLError."""
    name = GPU_CALLS["licensable_features"]
    code = pynvml._nvmlGetFunctionPointer(name)(handle, ctypes.byref(found))  # noqa: SLF001 - as its own wrappers
    pynvml._nvmlCheckReturn(code)  # noqa: SLF001 - likewise


def _licensable_feature(feature: Any) -> LicensableFeature:
    return LicensableFeature(
        product=_text(feature.productName),
        licensed=bool(feature.featureState),
        enabled=bool(feature.featureEnabled),
        expires=_expiry(feature.licenseExpiry),
    )


def _text(value: bytes | str) -> str:
    # The structs of the binding decode their strings, plain ctypes structs do not.
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _expiry(expiry: Any) -> datetime | None:
    """When a license ends, in UTC; None unless the status says that the date is valid."""
    if int(expiry.status) != _EXPIRY_VALID:
        return None
    try:
        time = (expiry.year, expiry.month, expiry.day, expiry.hour, expiry.min, expiry.sec)
        return datetime(*time, tzinfo=UTC)
    except ValueError:
        return None
