"""The CUDA driver API as far as the probe needs it: a protocol, and libcuda behind it.

Names and types are those of cuda.h of CUDA 12.9 and 13.5. A program that includes cuda.h gets the versioned
symbols, such as ``cuMemAlloc_v2``, without naming them; a program that loads the library names them itself.
"""

# ruff: noqa: D102 - the protocol documents the calls

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Callable
from typing import Any, Protocol

from driver.errors import CudaError

LIBRARY = "libcuda.so.1"
OUT_OF_MEMORY = 2
"""CUDA_ERROR_OUT_OF_MEMORY."""

INVALID_VALUE = 1
"""CUDA_ERROR_INVALID_VALUE."""

THREADS_OF_BLOCK = 256
"""How many threads a block of the kernel has: every GPU can run so many."""

_MAJOR, _MINOR, _MPS_ENABLED = 75, 76, 133  # CUdevice_attribute: compute capability, contexts shared by MPS
_MOST_NAME_BYTES = 256

# By the name of the symbol, the types of its parameters. Every function returns a CUresult, which is an enum.
# CUdevice is an int and CUdeviceptr has 64 bits; the other handles are pointers.
_INT, _UINT, _SIZE = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
_POINTER, _ADDRESS, _TEXT = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p
_PARAMETERS: dict[str, tuple[Any, ...]] = {
    "cuInit": (_UINT,),
    "cuDriverGetVersion": (ctypes.POINTER(_INT),),
    "cuDeviceGetCount": (ctypes.POINTER(_INT),),
    "cuDeviceGet": (ctypes.POINTER(_INT), _INT),
    "cuDeviceGetName": (_TEXT, _INT, _INT),
    "cuDeviceGetUuid": (_TEXT, _INT),
    "cuDeviceGetUuid_v2": (_TEXT, _INT),
    "cuDeviceTotalMem_v2": (ctypes.POINTER(_SIZE), _INT),
    "cuDeviceGetAttribute": (ctypes.POINTER(_INT), _INT, _INT),
    "cuDevicePrimaryCtxRetain": (ctypes.POINTER(_POINTER), _INT),
    "cuDevicePrimaryCtxRelease_v2": (_INT,),
    "cuCtxSetCurrent": (_POINTER,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (ctypes.POINTER(_SIZE), ctypes.POINTER(_SIZE)),
    "cuMemAlloc_v2": (ctypes.POINTER(_ADDRESS), _SIZE),
    "cuMemFree_v2": (_ADDRESS,),
    "cuMemsetD8_v2": (_ADDRESS, ctypes.c_ubyte, _SIZE),
    "cuMemcpyHtoD_v2": (_ADDRESS, _POINTER, _SIZE),
    "cuMemcpyDtoH_v2": (_POINTER, _ADDRESS, _SIZE),
    "cuModuleLoadData": (ctypes.POINTER(_POINTER), _TEXT),
    "cuModuleGetFunction": (ctypes.POINTER(_POINTER), _POINTER, _TEXT),
    "cuModuleUnload": (_POINTER,),
    "cuLaunchKernel": (
        _POINTER, _UINT, _UINT, _UINT, _UINT, _UINT, _UINT, _UINT, _POINTER,
        ctypes.POINTER(_POINTER), ctypes.POINTER(_POINTER),
    ),
    "cuGetErrorName": (_INT, ctypes.POINTER(_TEXT)),
}  # fmt: skip


class Cuda(Protocol):
    """CUDA of one process. A device is the number that ``device`` returns; a failed call is a CudaError.

    ``init`` comes first. The calls about memory and kernels are about the device that ``enter`` named last.
    Any call may hang for ever, and only the end of the process ends it.
    """

    def init(self) -> None:
        """Begin (cuInit). A process that cannot see any device may fail here with CUDA_ERROR_NO_DEVICE."""
        ...

    def version(self) -> tuple[int, int]:
        """The CUDA version that the driver supports."""
        ...

    def device_count(self) -> int:
        """How many devices the process sees. With MIG it is one at most (MIG user guide)."""
        ...

    def device(self, ordinal: int) -> int:
        """The device with a number from 0 on."""
        ...

    def name(self, device: int) -> str:
        """The product's name; that of a MIG device ends with its profile."""
        ...

    def uuid(self, device: int) -> str:
        """The UUID as NVML has it: ``GPU-…``, or ``MIG-…`` for a MIG device."""
        ...

    def total_bytes(self, device: int) -> int:
        """The memory of a device, without what the driver keeps for itself."""
        ...

    def compute_capability(self, device: int) -> tuple[int, int]:
        """The compute capability."""
        ...

    def under_mps(self, device: int) -> bool | None:
        """Whether contexts on the device are those of an MPS server; None if the driver cannot say it."""
        ...

    def enter(self, device: int) -> None:
        """Make the device's primary context unless it is there, and make it current."""
        ...

    def leave(self, device: int) -> None:
        """Release the primary context, which frees all of its memory."""
        ...

    def memory(self) -> tuple[int, int]:
        """The free and the total bytes of the current device, as its context sees them."""
        ...

    def allocate(self, size_bytes: int) -> int:
        """Allocate memory; returns its address. The code OUT_OF_MEMORY means that there is not so much."""
        ...

    def free(self, address: int) -> None:
        """Free memory that ``allocate`` gave."""
        ...

    def set_bytes(self, address: int, value: int, count: int) -> None:
        """Set so many bytes to a value."""
        ...

    def write(self, address: int, content: bytes) -> None:
        """Copy to the device."""
        ...

    def read(self, address: int, size_bytes: int) -> bytes:
        """Copy from the device."""
        ...

    def load(self, ptx: str) -> int:
        """Compile PTX for the current device and load it; returns the module."""
        ...

    def unload(self, module: int) -> None:
        """Unload a module."""
        ...

    def launch(self, module: int, entry: str, address: int, count: int, seed: int) -> None:
        """Start a kernel with these parameters (.u64, .u32, .u32), a thread for each of ``count``."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has done all that was started. A failed kernel fails here."""
        ...


class LibCuda:
    """The CUDA of this machine's NVIDIA driver, through libcuda."""

    def __init__(self, library: str = LIBRARY) -> None:
        """Load the library, by its path or as the dynamic linker finds it; CudaError if that fails."""
        self._path = library
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise CudaError("dlopen", None, str(error)) from error
        self._calls: dict[str, Callable[..., int]] = {}
        self._contexts: dict[int, int | None] = {}

    def init(self) -> None:
        self._call("cuInit", 0)

    def version(self) -> tuple[int, int]:
        number = _INT()
        self._call("cuDriverGetVersion", ctypes.byref(number))
        # 13050 is CUDA 13.5.
        return number.value // 1000, number.value % 1000 // 10

    def device_count(self) -> int:
        count = _INT()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def device(self, ordinal: int) -> int:
        device = _INT()
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        return device.value

    def name(self, device: int) -> str:
        text = ctypes.create_string_buffer(_MOST_NAME_BYTES)
        self._call("cuDeviceGetName", text, len(text), device)
        return text.value.decode(errors="replace")

    def uuid(self, device: int) -> str:
        # CUDA returns 16 bytes and has no attribute for MIG. The first version of the call always means the
        # GPU, the second the MIG device, so they differ for one. The name of a MIG device says it too.
        # Drivers before R470 have only the first version, and cuda.h of CUDA 13 has only the second.
        found = [
            self._uuid(call, device)
            for call in ("cuDeviceGetUuid", "cuDeviceGetUuid_v2")
            if hasattr(self._library, call)
        ]
        if not found:
            raise CudaError("dlsym", None, f"{self._path} has no cuDeviceGetUuid_v2")
        is_mig = found[0] != found[-1] or " MIG " in self.name(device)
        return f"{'MIG' if is_mig else 'GPU'}-{found[-1]}"

    def total_bytes(self, device: int) -> int:
        size = _SIZE()
        self._call("cuDeviceTotalMem_v2", ctypes.byref(size), device)
        return size.value

    def compute_capability(self, device: int) -> tuple[int, int]:
        return self._attribute(_MAJOR, device), self._attribute(_MINOR, device)

    def under_mps(self, device: int) -> bool | None:
        try:
            return bool(self._attribute(_MPS_ENABLED, device))
        except CudaError as error:
            # An attribute that the driver does not know.
            if error.code != INVALID_VALUE:
                raise
            return None

    def enter(self, device: int) -> None:
        if device not in self._contexts:
            context = _POINTER()
            # cuCtxCreate would do, but it has other parameters in CUDA 13.
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self._contexts[device] = context.value
        self._call("cuCtxSetCurrent", self._contexts[device])

    def leave(self, device: int) -> None:
        if self._contexts.pop(device, None) is not None:
            self._call("cuDevicePrimaryCtxRelease_v2", device)

    def memory(self) -> tuple[int, int]:
        free, total = _SIZE(), _SIZE()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def allocate(self, size_bytes: int) -> int:
        address = _ADDRESS()
        self._call("cuMemAlloc_v2", ctypes.byref(address), size_bytes)
        return address.value

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", address)

    def set_bytes(self, address: int, value: int, count: int) -> None:
        self._call("cuMemsetD8_v2", address, value, count)

    def write(self, address: int, content: bytes) -> None:
        self._call("cuMemcpyHtoD_v2", address, content, len(content))

    def read(self, address: int, size_bytes: int) -> bytes:
        content = ctypes.create_string_buffer(size_bytes)
        self._call("cuMemcpyDtoH_v2", content, address, size_bytes)
        return content.raw

    def load(self, ptx: str) -> int:
        module = _POINTER()
        # CUDA knows PTX from a binary by its beginning, and reads it up to the zero that ctypes adds.
        self._call("cuModuleLoadData", ctypes.byref(module), ptx.encode())
        return module.value or 0

    def unload(self, module: int) -> None:
        self._call("cuModuleUnload", module)

    def launch(self, module: int, entry: str, address: int, count: int, seed: int) -> None:
        function = _POINTER()
        self._call("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
        given = (_ADDRESS(address), ctypes.c_uint32(count), ctypes.c_uint32(seed))
        pointers = (_POINTER * len(given))(*(ctypes.addressof(one) for one in given))
        blocks = -(-count // THREADS_OF_BLOCK)
        self._call("cuLaunchKernel", function, blocks, 1, 1, THREADS_OF_BLOCK, 1, 1, 0, None, pointers, None)

    def synchronize(self) -> None:
        self._call("cuCtxSynchronize")

    def _uuid(self, call: str, device: int) -> str:
        # CUuuid is a structure of 16 bytes.
        octets = ctypes.create_string_buffer(16)
        self._call(call, octets, device)
        return str(uuid.UUID(bytes=octets.raw))

    def _attribute(self, number: int, device: int) -> int:
        value = _INT()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value

    def _call(self, name: str, *arguments: object) -> None:
        """Call a function; raises CudaError."""
        code = self._function(name)(*arguments)
        if code != 0:
            raise CudaError(name, code, self._error_name(code))

    def _function(self, name: str) -> Callable[..., int]:
        found = self._calls.get(name)
        if found is None:
            try:
                found = getattr(self._library, name)
            except AttributeError as error:
                raise CudaError("dlsym", None, f"{self._path} has no {name}") from error
            found.argtypes, found.restype = _PARAMETERS[name], _INT
            self._calls[name] = found
        return found

    def _error_name(self, code: int) -> str:
        text = _TEXT()
        try:
            known = self._function("cuGetErrorName")(code, ctypes.byref(text)) == 0
        except CudaError:
            known = False
        return text.value.decode() if known and text.value else "an unknown error"
