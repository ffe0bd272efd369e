"""The NVML calls that the driver makes, as two protocols, and the errors that a call can end with.

The real binding and the fake implement both protocols and pass the same contract tests. Nothing here imports
pynvml: handles are objects, enum values are words, memory is in bytes, addresses are PciAddress.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Literal, Protocol

from driver.errors import NvmlError
from driver.nvml.health.calls import HEALTH_CALLS, EventSet, HealthCalls
from driver.nvml.memory_limits import MEMORY_CALLS, MemoryCalls
from driver.nvml.mig import MIG_CALLS, MigCalls
from driver.nvml.modes import MODE_CALLS, ModeCalls
from driver.nvml.pci_address import PciAddress
from driver.nvml.use.calls import USE_CALLS, UseCalls
from driver.nvml.vgpu import LicensableFeature, VgpuType


class Code(IntEnum):
    """The return codes of nvml.h that mean something to this driver; others stay plain numbers."""

    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    # The GPU, its mode or the driver does not have the feature. Most optional calls end so somewhere.
    NOT_SUPPORTED = 3
    # The NVIDIA kernel module asks for CAP_SYS_ADMIN, not for user 0.
    NO_PERMISSION = 4
    NOT_FOUND = 6
    # The library is there, and no nvidia kernel module answers it.
    DRIVER_NOT_LOADED = 9
    # nvmlEventSetWait ends with this when no event came, which is not an error.
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    # From the binding, not from NVML: the installed library has no such symbol, so it is older than the call.
    FUNCTION_NOT_FOUND = 13
    # The GPU does not answer on the PCI bus any more. Only a reset or a reboot brings it back.
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    # The library and the loaded kernel module are of different versions, as in a half-done upgrade.
    LIB_RM_VERSION_MISMATCH = 18
    # A process has the GPU or the instance open, or an instance still contains others.
    IN_USE = 19
    INSUFFICIENT_RESOURCES = 23
    GPU_NOT_FOUND = 28
    UNKNOWN = 999


class NvmlCallFailed(NvmlError):
    """An NVML call ended with a return code other than success.

    ``call`` is the C function, ``code`` its return code, ``subject`` the GPU or ``""`` for the node.
    """

    default_way_out: ClassVar[str] = "look for NVIDIA messages in the kernel log (dmesg | grep -i nvrm)"

    def __init__(self, call: str, code: int, subject: str = "", way_out: str = "") -> None:
        of = f" of {subject}" if subject else ""
        # DriverError makes texts fit to be shown that may quote a tenant. This one quotes none, and every
        # reading of a GPU makes some of these errors, which nobody is shown.
        self.what = f"{call}{of} failed with {code_name(code)} ({code})"
        self.way_out, self.for_log = way_out or self.default_way_out, ""
        Exception.__init__(self, self.what)
        self.call = call
        self.code = code
        self.subject = subject


class NotSupported(NvmlCallFailed):
    """The GPU or the installed NVIDIA driver does not have this feature. A retry cannot help."""

    retryable = False
    default_way_out = "treat the value as unknown"


class FabricFailed(NvmlCallFailed):
    """The call succeeded, and its answer is that the NVLink fabric was set up with an error: ``code``."""

    # The code is one of NVML's, but says nothing about this session: 1 does not mean that it is lost, nor 15
    # that the GPU is. So it must not become SessionLost or GpuLost.
    default_way_out = "see the log of nvidia-fabricmanager"

    def __init__(self, code: int, subject: str) -> None:
        super().__init__(GPU_CALLS["fabric"], code, subject)
        self.what = f"the NVLink fabric of {subject} failed with {code_name(code)} ({code})"


class GpuLost(NvmlCallFailed):
    """The GPU fell off the bus or is not reachable (XID 79)."""

    default_way_out = "drain the node and restart the machine; a reset does not help"


class NotFound(NvmlCallFailed):
    """NVML has no such GPU."""

    default_way_out = "check that the GPU is bound to the nvidia kernel driver"


class InstanceNotFound(NotFound):
    """The GPU has no GPU instance or compute instance of that id."""

    default_way_out = "it was destroyed by a reset, a reboot or another program: list the instances again"


class NoMemoryLimits(NotFound):
    """The control group has no memory limits on the GPU."""

    default_way_out = (
        "set them; they are gone when the group is removed, the GPU is reset or the driver is loaded"
    )


class DriverNotLoaded(NvmlCallFailed):
    """The NVML library or the NVIDIA kernel driver is not installed or not loaded (yet)."""

    default_way_out = "install or load the NVIDIA driver; this needs no restart of this process"


class SessionLost(NvmlCallFailed):
    """NVML is not initialized, or was shut down: initialize it and take fresh handles."""

    default_way_out = "initialize NVML again"


class NvmlTimeout(NvmlCallFailed):
    """The call did not return within its deadline and is still running in the kernel."""

    default_way_out = "the GPU or its driver hangs; it is used again when the call returns"

    def __init__(self, call: str, subject: str, deadline_seconds: float) -> None:
        super().__init__(call, Code.TIMEOUT, subject)
        # No code of NVML says this: the call is still in the kernel and may return one later.
        self.what = f"{call} of {subject} did not return within {deadline_seconds:g} s"


_ERRORS: dict[int, type[NvmlCallFailed]] = {
    Code.UNINITIALIZED: SessionLost,
    Code.NOT_SUPPORTED: NotSupported,
    # An old library and an old GPU are the same for callers: the value cannot be had here.
    Code.FUNCTION_NOT_FOUND: NotSupported,
    Code.NOT_FOUND: NotFound,
    Code.GPU_NOT_FOUND: NotFound,
    Code.DRIVER_NOT_LOADED: DriverNotLoaded,
    Code.LIBRARY_NOT_FOUND: DriverNotLoaded,
    Code.GPU_IS_LOST: GpuLost,
}
_NAMES: dict[int, str] = {code.value: code.name for code in Code}
_WAYS_OUT: dict[int, str] = {
    Code.LIB_RM_VERSION_MISMATCH: (
        "the NVIDIA libraries and the loaded kernel driver have different versions: reload the kernel "
        "modules or restart the machine, then restart this process"
    ),
    Code.NO_PERMISSION: "give the container the NVIDIA device nodes; changes of a GPU need root",
    Code.IN_USE: "end the processes that use the GPU",
    Code.INSUFFICIENT_RESOURCES: "other instances hold the slices or the engines: wait until they are gone",
    Code.RESET_REQUIRED: "reset the GPU (nvidia-smi --gpu-reset) when it is idle",
    Code.OPERATING_SYSTEM: "the operating system refused it: check whether the file that it is about exists",
}
_INSTANCE_CALLS = frozenset(
    MIG_CALLS[method]
    for method in (
        "destroy_gpu_instance", "compute_instance_profiles", "compute_instances", "create_compute_instance",
        "destroy_compute_instance",
    )
)  # fmt: skip


def code_name(code: int) -> str:
    """The name that nvml.h gives the return code, without its prefix; ``ERROR`` where it is unknown."""
    return _NAMES.get(code, "ERROR")


def failure(call: str, code: int, subject: str = "") -> NvmlCallFailed:
    """The error for an NVML return code. No other place turns codes into errors."""
    # NVML has one NOT_FOUND for a GPU, an instance and a limit. What is missing follows from the call alone.
    if code == Code.NOT_FOUND and call in _INSTANCE_CALLS:
        return InstanceNotFound(call, code, subject)
    if code == Code.NOT_FOUND and call == MEMORY_CALLS["memory_limits"]:
        return NoMemoryLimits(call, code, subject)
    return _ERRORS.get(code, NvmlCallFailed)(call, code, subject, _WAYS_OUT.get(code, ""))


@dataclass(frozen=True, slots=True)
class NvLinkEnd:
    """Where one active NVLink of a GPU leads: to a GPU (then ``remote`` says which) or elsewhere."""

    kind: Literal["gpu", "switch", "other"]
    remote: PciAddress | None = None


@dataclass(frozen=True, slots=True)
class MigMode:
    """Whether MIG is on, and whether it will be after the next reset."""

    enabled: bool
    pending: bool


FabricInfoState = Literal["not-supported", "not-started", "in-progress", "completed"]


@dataclass(frozen=True, slots=True)
class FabricInfo:
    """A GPU's place in an NVLink fabric; ``cluster_uuid`` is all zero in a fabric of a single node."""

    state: FabricInfoState
    cluster_uuid: str
    clique: int


Virtualization = Literal["none", "passthrough", "vgpu", "host-vgpu", "host-vsga"]
AddressingMode = Literal["HMM", "ATS", "None"]


class NvmlDevice(ModeCalls, MigCalls, MemoryCalls, HealthCalls, UseCalls, Protocol):
    """One GPU's handle, valid until its session ends; every call may raise NvmlError.

    A value that the GPU does not report raises NotSupported. A value that NVML reports as unknown is None.
    """

    def uuid(self) -> str:
        """``GPU-<uuid>`` (nvmlDeviceGetUUID)."""
        ...

    def minor(self) -> int:
        """The N of /dev/nvidiaN (nvmlDeviceGetMinorNumber); a reset or a reboot may change it."""
        ...

    def index(self) -> int:
        """NVML's index, in the order of PCI addresses (nvmlDeviceGetIndex)."""
        ...

    def pci(self) -> PciAddress:
        """Where the GPU sits (nvmlDeviceGetPciInfo_v3)."""
        ...

    def name(self) -> str:
        """The product name, such as ``NVIDIA A100-SXM4-80GB`` (nvmlDeviceGetName)."""
        ...

    def brand(self) -> str | None:
        """``Nvidia``, ``Tesla``, ``GeForce`` and so on (nvmlDeviceGetBrand)."""
        ...

    def architecture(self) -> str | None:
        """``Ampere``, ``Ada Lovelace``, ``Hopper`` and so on (nvmlDeviceGetArchitecture)."""
        ...

    def compute_capability(self) -> tuple[int, int]:
        """Major and minor (nvmlDeviceGetCudaComputeCapability)."""
        ...

    def memory_bytes(self) -> int:
        """All of the frame buffer (nvmlDeviceGetMemoryInfo)."""
        ...

    def addressing_mode(self) -> AddressingMode | None:
        """How the GPU addresses system memory (nvmlDeviceGetAddressingMode)."""
        ...

    def numa_node(self) -> int:
        """The NUMA node that the GPU is attached to (nvmlDeviceGetMemoryAffinity).

        NotSupported where NVML names none or several. nvmlDeviceGetNumaNodeId is not the same: it gives the
        node that consists of the GPU's own memory.
        """
        ...

    def nvlinks(self) -> tuple[NvLinkEnd, ...]:
        """The far ends of all active links (nvmlDeviceGetNvLinkState and the two GetNvLinkRemote calls)."""
        ...

    def mig_mode(self) -> MigMode:
        """MIG mode now and pending (nvmlDeviceGetMigMode); NotSupported: the GPU has no MIG."""
        ...

    def fabric(self) -> FabricInfo:
        """The place in the NVLink fabric (nvmlDeviceGetGpuFabricInfoV)."""
        ...

    def module_id(self) -> int:
        """The GPU's slot on its baseboard, from 1; NotSupported without one (nvmlDeviceGetModuleId)."""
        ...

    def virtualization(self) -> Virtualization | None:
        """How the GPU is virtualized, seen from this machine (nvmlDeviceGetVirtualizationMode).

        ``vgpu`` means that this machine is a guest with a vGPU.
        """
        ...

    def vgpu_types(self) -> tuple[VgpuType, ...]:
        """The vGPUs that a host can make of the GPU, sorted by id (nvmlDeviceGetSupportedVgpus).

        vGPUs that exist already do not change the list; the MIG mode does. NotSupported on a machine that is
        not a vGPU host.
        """
        ...

    def licensable_features(self) -> tuple[LicensableFeature, ...]:
        """The features that need a license in a vGPU guest (nvmlDeviceGetGridLicensableFeatures_v4).

        Empty where the NVIDIA driver has no licensing, as on bare metal.
        """
        ...

    def process_ids(self) -> tuple[int, ...]:
        """The processes that compute or draw on the GPU, as sorted ids of the host.

        (nvmlDeviceGetComputeRunningProcesses_v3, nvmlDeviceGetGraphicsRunningProcesses_v3)
        """
        ...


class Nvml(Protocol):
    """NVML on this node. All calls may raise NvmlError; before ``init`` they raise SessionLost."""

    def init(self) -> None:
        """Start a session, which one ``shutdown`` ends. DriverNotLoaded without an NVIDIA driver."""
        ...

    def shutdown(self) -> None:
        """End the session. All handles become invalid, and the kernel driver can be unloaded."""
        ...

    def driver_version(self) -> str:
        """The NVIDIA driver, ``570.133.20`` (nvmlSystemGetDriverVersion)."""
        ...

    def cuda_driver_version(self) -> str:
        """The newest CUDA version that the driver supports, ``12.8`` (nvmlSystemGetCudaDriverVersion_v2)."""
        ...

    def device_count(self) -> int:
        """How many GPUs NVML lists (nvmlDeviceGetCount_v2)."""
        ...

    def device_by_index(self, index: int) -> NvmlDevice:
        """A handle (nvmlDeviceGetHandleByIndex_v2); GpuLost when the GPU has fallen off the bus."""
        ...

    def device_by_pci(self, pci: PciAddress) -> NvmlDevice:
        """A handle (nvmlDeviceGetHandleByPciBusId_v2); NotFound when NVML lists no GPU there."""
        ...

    def watch_events(self, devices: Sequence[NvmlDevice]) -> EventSet:
        """The events of these GPUs from now on, until ``shutdown`` (nvmlEventSetCreate).

        A GPU that reports no events, or is lost, is left out: see ``EventSet.watched``. Each incident is
        delivered once, even by a driver that reports it in two forms.
        """
        ...


# The names are written down here rather than taken from the binding: errors, metrics and the deadlines use
# them, and none of those may import pynvml.
NODE_CALLS: dict[str, str] = {
    "init": "nvmlInitWithFlags",
    "shutdown": "nvmlShutdown",
    "driver_version": "nvmlSystemGetDriverVersion",
    "cuda_driver_version": "nvmlSystemGetCudaDriverVersion_v2",
    "device_count": "nvmlDeviceGetCount_v2",
    "watch_events": "nvmlEventSetCreate",
    "wait_events": "nvmlEventSetWait_v2",
}
"""The calls that are not about one GPU: method of Nvml -> C function; the last is ``EventSet.wait``."""

GPU_CALLS: dict[str, str] = {
    "device_by_index": "nvmlDeviceGetHandleByIndex_v2",
    "device_by_pci": "nvmlDeviceGetHandleByPciBusId_v2",
    "uuid": "nvmlDeviceGetUUID",
    "minor": "nvmlDeviceGetMinorNumber",
    "index": "nvmlDeviceGetIndex",
    "pci": "nvmlDeviceGetPciInfo_v3",
    "name": "nvmlDeviceGetName",
    "brand": "nvmlDeviceGetBrand",
    "architecture": "nvmlDeviceGetArchitecture",
    "compute_capability": "nvmlDeviceGetCudaComputeCapability",
    "memory_bytes": "nvmlDeviceGetMemoryInfo",
    "addressing_mode": "nvmlDeviceGetAddressingMode",
    "numa_node": "nvmlDeviceGetMemoryAffinity",
    "nvlinks": "nvmlDeviceGetNvLinkState",
    "mig_mode": "nvmlDeviceGetMigMode",
    "fabric": "nvmlDeviceGetGpuFabricInfoV",
    "module_id": "nvmlDeviceGetModuleId",
    "virtualization": "nvmlDeviceGetVirtualizationMode",
    "vgpu_types": "nvmlDeviceGetSupportedVgpus",
    "licensable_features": "nvmlDeviceGetGridLicensableFeatures_v4",
    "process_ids": "nvmlDeviceGetComputeRunningProcesses_v3",
    **MODE_CALLS,
    **MEMORY_CALLS,
    **MIG_CALLS,
    **HEALTH_CALLS,
    **USE_CALLS,
}
"""The calls about one GPU: method of Nvml or NvmlDevice -> the C function that errors name."""
