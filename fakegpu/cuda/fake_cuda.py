"""CUDA of one process on a fake machine: the devices that it sees, their memory, and one kernel.

It has the methods of gpuctl.probe.cuda. Besides CUDA's own variables it reads two others:

- ``FAKEGPU_VISIBLE_NODES``: the device nodes of its container; without it, it sees the whole machine.
- ``FAKEGPU_CGROUP``: its control group as NVML takes it, ``/sys/fs/cgroup/…``; without it, the root group.
"""

# ruff: noqa: D102 - the protocol of gpuctl.probe.cuda documents the calls

from __future__ import annotations

import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from driver.errors import CudaError, DriverError
from driver.nvml.pci_address import PciAddress
from fakegpu.cuda.visible_devices import SeenDevice, visible_devices
from fakegpu.machine.capabilities import visible_nodes
from fakegpu.machine.cgroups import CGROUP_ROOT, group_at
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.machine.faults import ANY, KERNEL_LAUNCH, CallFault
from fakegpu.machine.holds import GpuHold
from fakegpu.machine.spoiling import lies, spoil
from fakegpu.memory.cuda import ContextLost, CudaFailed, FakeCudaClient, OutOfMemory, device_bytes
from fakegpu.mps.client import SOCKET, ClientRefused, CudaProcess, DaemonGone

CGROUP = "FAKEGPU_CGROUP"
_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_MIB = 1 << 20
_FACTOR = 0x9E3779B1
_MASK = 0xFFFFFFFF
_FIRST_ADDRESS = 0x7F00_0000_0000
_PAGE_BYTES = 2 << 20
_KEPT_BYTES = 16 << 20
"""How much of an allocation has a content. What is written behind it is gone: it would take real memory."""

_NAMES = {
    1: "CUDA_ERROR_INVALID_VALUE",
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    3: "CUDA_ERROR_NOT_INITIALIZED",
    46: "CUDA_ERROR_DEVICE_UNAVAILABLE",
    100: "CUDA_ERROR_NO_DEVICE",
    101: "CUDA_ERROR_INVALID_DEVICE",
    201: "CUDA_ERROR_INVALID_CONTEXT",
    218: "CUDA_ERROR_INVALID_PTX",
    500: "CUDA_ERROR_NOT_FOUND",
    700: "CUDA_ERROR_ILLEGAL_ADDRESS",
    719: "CUDA_ERROR_LAUNCH_FAILED",
    805: "CUDA_ERROR_MPS_CONNECTION_FAILED",
    808: "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
    999: "CUDA_ERROR_UNKNOWN",
}


@dataclass(slots=True)
class _Context:
    """The primary context of a device: its client, what it holds open, and by address what it allocated."""

    device: SeenDevice
    client: FakeCudaClient
    hold: GpuHold
    buffers: dict[int, bytearray] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)


class FakeCuda:
    """CUDA of one process. A call that hangs, fails or lies does so by the machine's fault rules."""

    def __init__(self, machine: FakeMachine, environment: Mapping[str, str]) -> None:
        self._machine = machine
        self._store = machine.nvml().store
        self._environment = environment
        self._devices: tuple[SeenDevice, ...] = ()
        self._begun = False
        self._mps: CudaProcess | None = None
        self._contexts: dict[int, _Context] = {}
        self._current: _Context | None = None
        self._modules: dict[int, str] = {}
        self._next = _FIRST_ADDRESS

    @classmethod
    def open(cls, flag: str, environment: Mapping[str, str]) -> FakeCuda:
        """The CUDA of the machine of ``fake:MACHINE@STATE``; raises ConfigError."""
        return cls(FakeMachine.open(flag), environment)

    def init(self) -> None:
        self._spoil("cuInit")
        self._begun = True
        if not self._machine.state.driver_loaded:
            raise _error("cuInit", 100)
        spec, state, nodes = self._machine.spec, self._machine.state, visible_nodes(self._environment)
        self._devices = visible_devices(spec, state, self._environment, nodes)
        if not self._devices:
            raise _error("cuInit", 100)
        self._join_mps()
        if self._mps is not None:
            self._devices = visible_devices(spec, state, self._environment, nodes, self._mps.devices)

    def version(self) -> tuple[int, int]:
        self._enter("cuDriverGetVersion")
        major, _, minor = self._machine.state.cuda_driver_version.partition(".")
        return int(major), int(minor)

    def device_count(self) -> int:
        self._enter("cuDeviceGetCount")
        return len(self._devices)

    def device(self, ordinal: int) -> int:
        self._enter("cuDeviceGet")
        if not 0 <= ordinal < len(self._devices):
            raise _error("cuDeviceGet", 101)
        return ordinal

    def name(self, device: int) -> str:
        return self._device("cuDeviceGetName", device).name

    def uuid(self, device: int) -> str:
        return self._device("cuDeviceGetUuid_v2", device).uuid

    def total_bytes(self, device: int) -> int:
        seen = self._device("cuDeviceTotalMem_v2", device)
        return device_bytes(self._machine.spec, self._machine.state, seen.place)

    def compute_capability(self, device: int) -> tuple[int, int]:
        self._device("cuDeviceGetAttribute", device)
        return self._machine.spec.product.compute_capability

    def under_mps(self, device: int) -> bool | None:
        self._device("cuDeviceGetAttribute", device)
        return self._mps is not None

    def enter(self, device: int) -> None:
        call = "cuDevicePrimaryCtxRetain"
        seen = self._device(call, device)
        if device not in self._contexts:
            self._contexts[device] = self._context(call, seen)
        self._current = self._contexts[device]

    def leave(self, device: int) -> None:
        self._device("cuDevicePrimaryCtxRelease_v2", device)
        context = self._contexts.pop(device, None)
        if context is not None:
            context.client.end()
            context.hold.release()
        if context is self._current:
            self._current = None
        if not self._contexts and self._mps is not None:
            self._mps.close()
            self._mps = None

    def memory(self) -> tuple[int, int]:
        context = self._in_context("cuMemGetInfo_v2")
        total = device_bytes(self._machine.spec, self._machine.state, context.device.place)
        try:
            free = context.client.free_bytes
        except CudaFailed as error:
            raise _error("cuMemGetInfo_v2", _code(error)) from error
        most = self._most_bytes(context)
        return (free if most is None else max(0, min(free, most - _sum(context))), total)

    def allocate(self, size_bytes: int) -> int:
        call = "cuMemAlloc_v2"
        context = self._in_context(call)
        if size_bytes <= 0:
            raise _error(call, 1)
        most = self._most_bytes(context)
        if most is not None and _sum(context) + size_bytes > most:
            raise _error(call, 2)
        try:
            context.client.allocate(size_bytes)
        except CudaFailed as error:
            raise _error(call, _code(error)) from error
        address, pages = self._next, -(-size_bytes // _PAGE_BYTES)
        # A page is left out behind each, so that what is written beyond the end is noticed.
        self._next += (pages + 1) * _PAGE_BYTES
        context.sizes[address] = size_bytes
        return address

    def free(self, address: int) -> None:
        context = self._in_context("cuMemFree_v2")
        if address not in context.sizes:
            raise _error("cuMemFree_v2", 1)
        try:
            context.client.free(context.sizes.pop(address))
        except CudaFailed as error:
            raise _error("cuMemFree_v2", _code(error)) from error
        context.buffers.pop(address, None)

    def set_bytes(self, address: int, value: int, count: int) -> None:
        self._put("cuMemsetD8_v2", address, bytes([value]) * count)

    def write(self, address: int, content: bytes) -> None:
        self._put("cuMemcpyHtoD_v2", address, content)

    def read(self, address: int, size_bytes: int) -> bytes:
        return self._get("cuMemcpyDtoH_v2", address, size_bytes)

    def load(self, ptx: str) -> int:
        self._in_context("cuModuleLoadData")
        if ".entry" not in ptx:
            raise _error("cuModuleLoadData", 218)
        self._next += _PAGE_BYTES
        self._modules[self._next] = ptx
        return self._next

    def unload(self, module: int) -> None:
        self._in_context("cuModuleUnload")
        if self._modules.pop(module, None) is None:
            raise _error("cuModuleUnload", 1)

    def launch(self, module: int, entry: str, address: int, count: int, seed: int) -> None:
        context = self._in_context("cuModuleGetFunction")
        if f".entry {entry}(" not in self._modules.get(module, ""):
            raise _error("cuModuleGetFunction", 500)
        self._enter(KERNEL_LAUNCH, context.device.place.pci)
        # The machine knows no PTX. All kernels are taken for the probe's: word * FACTOR + seed.
        words = array.array("I", self._get(KERNEL_LAUNCH, address, count * 4))
        if lies(self._store, lambda fault: fault.hits(KERNEL_LAUNCH, context.device.place.pci)):
            seed += 1
        computed = array.array("I", [(word * _FACTOR + seed) & _MASK for word in words])
        self._put(KERNEL_LAUNCH, address, computed.tobytes())

    def synchronize(self) -> None:
        self._in_context("cuCtxSynchronize")

    def _enter(self, call: str, pci: PciAddress | None = None) -> None:
        """Begin a call after cuInit: apply the fault rules about it."""
        if not self._begun:
            raise _error(call, 3)
        self._spoil(call, pci)

    def _spoil(self, call: str, pci: PciAddress | None = None) -> None:
        def hits(fault: CallFault) -> bool:
            # A rule about any call has a code of NVML; a GPU that hangs does it in CUDA, too.
            named = fault.call == call or (fault.call == ANY and fault.code is None)
            return named and not fault.after and fault.hits(call, pci)

        spoil(self._store, hits, lambda code: _error(call, code))

    def _device(self, call: str, device: int) -> SeenDevice:
        if not 0 <= device < len(self._devices):
            self._enter(call)
            raise _error(call, 101)
        self._enter(call, self._devices[device].place.pci)
        return self._devices[device]

    def _in_context(self, call: str) -> _Context:
        context = self._current
        self._enter(call, None if context is None else context.device.place.pci)
        if context is None:
            raise _error(call, 201)
        return context

    def _context(self, call: str, seen: SeenDevice) -> _Context:
        gpu = self._machine.state.gpus[seen.place.pci]
        others = gpu.process_ids or gpu.memory.clients
        exclusive = gpu.compute_mode == "exclusive-process" and others and self._mps is None
        if exclusive or gpu.compute_mode == "prohibited":
            raise _error(call, 46)
        try:
            client = self._machine.cuda_at(seen.place, self._cgroup())
        except CudaFailed as error:
            raise _error(call, _code(error)) from error
        roots = self._store.read_kernel(self._machine.spec).device_roots
        hold = GpuHold(self._store.holds.hold(seen.place.pci), roots, gpu.minor)
        return _Context(seen, client, hold)

    def _cgroup(self) -> str:
        """The control group of the process."""
        named, state = self._environment.get(CGROUP, CGROUP_ROOT), self._machine.state
        # Pretended containers have groups that do not exist on a machine that has the node's own groups.
        return named if state.pretend_cgroups or group_at(state, named) else CGROUP_ROOT

    def _join_mps(self) -> None:
        """Become a client of the MPS daemon, if there is one; raises CudaError if it does not take this."""
        pipes = self._environment.get(_PIPES)
        # As in CUDA, a process without a daemon goes on without MPS.
        if pipes is None or not Path(pipes, SOCKET).exists():
            return
        try:
            self._mps = CudaProcess(Path(pipes), self._environment)
        except ClientRefused as error:
            raise _error("cuInit", 808) from error
        except DaemonGone as error:
            raise _error("cuInit", 805) from error

    def _most_bytes(self, context: _Context) -> int | None:
        """The limit that MPS holds the process to on a device; None if there is none."""
        if self._mps is None:
            return None
        mib = self._mps.limits.pinned_mib.get(str(self._devices.index(context.device)))
        return None if mib is None else mib * _MIB

    def _buffer(self, call: str, address: int, size_bytes: int) -> tuple[bytearray, int]:
        """The content of the allocation around an address as far as needed, and the offset in it."""
        context = self._in_context(call)
        for start, size in context.sizes.items():
            if start <= address and address + size_bytes <= start + size:
                offset = address - start
                buffer = context.buffers.setdefault(start, bytearray())
                return buffer, offset
        raise _error(call, 700 if call == KERNEL_LAUNCH else 1)

    def _put(self, call: str, address: int, content: bytes) -> None:
        buffer, offset = self._buffer(call, address, len(content))
        if offset > _KEPT_BYTES:
            return
        if len(buffer) < offset + len(content):
            buffer.extend(bytes(offset + len(content) - len(buffer)))
        buffer[offset : offset + len(content)] = content

    def _get(self, call: str, address: int, size_bytes: int) -> bytes:
        buffer, offset = self._buffer(call, address, size_bytes)
        return bytes(buffer[offset : offset + size_bytes]).ljust(size_bytes, b"\0")


def _sum(context: _Context) -> int:
    return sum(context.sizes.values())


def _code(error: CudaFailed | DriverError) -> int:
    if isinstance(error, OutOfMemory):
        return 2
    return 201 if isinstance(error, ContextLost) else 999


def _error(call: str, code: int) -> CudaError:
    return CudaError(call, code, _NAMES.get(code, "an unknown error"))
