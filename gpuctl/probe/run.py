"""Uses every device that CUDA shows: allocates memory, runs a kernel, and compares what it computed."""

from __future__ import annotations

import array
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from driver.errors import CudaError
from gpuctl.probe.cuda import OUT_OF_MEMORY, Cuda

PTX = """.version 6.0
.target sm_50
.address_size 64

.visible .entry gpu_dra_probe(
    .param .u64 words,
    .param .u32 count,
    .param .u32 seed
)
{
    .reg .pred %p<2>;
    .reg .b32 %r<10>;
    .reg .b64 %rd<5>;

    ld.param.u64 %rd1, [words];
    ld.param.u32 %r1, [count];
    ld.param.u32 %r2, [seed];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.u32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r6, %r1;
    @%p1 bra DONE;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r6, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.u32 %r7, [%rd4];
    mov.u32 %r8, 0x9E3779B1;
    mad.lo.u32 %r9, %r7, %r8, %r2;
    st.global.u32 [%rd4], %r9;
DONE:
    ret;
}
"""
"""The kernel: each word becomes ``word * FACTOR + seed`` modulo 2**32.

The driver compiles it for the GPU that is there. Every driver since R384 compiles PTX 6.0 for sm_50, and for
every GPU since Maxwell.
"""

ENTRY = "gpu_dra_probe"
FACTOR = 0x9E3779B1
COUNT = 1 << 16
"""How many words the kernel computes: 256 blocks, so that each multiprocessor gets some."""

OK = "ok"
USUAL_BYTES = 64 << 20
"""How much it allocates unless it fills the device."""

LEAST_CHUNK_BYTES = 2 << 20
"""CUDA maps memory of a GPU in pages of this size, so a smaller chunk takes as much."""

_TOUCHED_BYTES = 4


@dataclass(slots=True)
class Used:
    """What the probe found on one device; None is what it could not find out.

    ``kernel`` is ``ok`` or says what was wrong. The memory stays allocated until ``release``.
    """

    uuid: str | None = None
    name: str | None = None
    compute_capability: tuple[int, int] | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    allocated_bytes: int = 0
    under_mps: bool | None = None
    kernel: str = "it was not run"
    device: int | None = None
    addresses: list[int] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """The device as the program prints it."""
        capability = self.compute_capability
        return {
            "uuid": self.uuid,
            "name": self.name,
            "computeCapability": None if capability is None else f"{capability[0]}.{capability[1]}",
            "totalBytes": self.total_bytes,
            "freeBytes": self.free_bytes,
            "allocatedBytes": self.allocated_bytes,
            "underMps": self.under_mps,
            "kernel": self.kernel,
        }


class Probe:
    """The devices that were used; they keep their memory until ``release``."""

    def __init__(self, open_cuda: Callable[[], Cuda]) -> None:
        self._open = open_cuda
        self.version: tuple[int, int] | None = None
        self.devices: list[Used] = []
        self.error: CudaError | None = None

    def run(self, *, fill: bool) -> None:
        """Use all devices. The first error is kept; a device that fails does not hide the others."""
        try:
            self._cuda = self._open()
            self._cuda.init()
            self.version = self._cuda.version()
            count = self._cuda.device_count()
        except CudaError as error:
            self.error = error
            return
        for ordinal in range(count):
            used = Used()
            self.devices.append(used)
            try:
                self._use(used, ordinal, fill=fill)
            except CudaError as error:
                self._note(error)
                used.kernel = error.what

    def release(self) -> None:
        """Free all memory and end the contexts."""
        for used in self.devices:
            if used.device is None:
                continue
            try:
                # Memory belongs to a context, and another device's may be current.
                self._cuda.enter(used.device)
                while used.addresses:
                    self._cuda.free(used.addresses.pop())
                self._cuda.leave(used.device)
            except CudaError as error:
                self._note(error)
            used.device = None

    @property
    def is_well(self) -> bool:
        """Whether nothing failed and all kernels computed what they should. Without a device nothing is."""
        return self.error is None and all(one.kernel == OK for one in self.devices)

    def document(self) -> dict[str, Any]:
        """All that was found, as the program prints it."""
        error = self.error
        said = None if error is None else {"call": error.call, "code": error.code, "name": error.name}
        version = None if self.version is None else f"{self.version[0]}.{self.version[1]}"
        return {"cudaVersion": version, "devices": [one.document() for one in self.devices], "error": said}

    def _note(self, error: CudaError) -> None:
        if self.error is None:
            self.error = error

    def _use(self, used: Used, ordinal: int, *, fill: bool) -> None:
        cuda = self._cuda
        device = cuda.device(ordinal)
        used.uuid, used.name = cuda.uuid(device), cuda.name(device)
        used.compute_capability = cuda.compute_capability(device)
        used.total_bytes = cuda.total_bytes(device)
        used.under_mps = cuda.under_mps(device)
        cuda.enter(device)
        used.device = device
        used.free_bytes, _ = cuda.memory()
        self._allocate(used, LEAST_CHUNK_BYTES if fill else USUAL_BYTES)
        used.kernel = self._compute(used.addresses[0])
        if fill:
            self._fill(used)

    def _allocate(self, used: Used, size_bytes: int) -> None:
        """Allocate, and write to both ends, which shows that the memory is there."""
        address = self._cuda.allocate(size_bytes)
        used.addresses.append(address)
        used.allocated_bytes += size_bytes
        for place in (address, address + size_bytes - _TOUCHED_BYTES):
            self._cuda.set_bytes(place, 0xA5, _TOUCHED_BYTES)

    def _fill(self, used: Used) -> None:
        """Allocate until there is no more, in ever smaller chunks."""
        total = used.total_bytes or LEAST_CHUNK_BYTES
        chunk = 1 << (total.bit_length() - 1)
        while chunk >= LEAST_CHUNK_BYTES:
            try:
                self._allocate(used, chunk)
            except CudaError as error:
                if (error.call, error.code) != ("cuMemAlloc_v2", OUT_OF_MEMORY):
                    raise
                chunk //= 2
        self._cuda.synchronize()

    def _compute(self, address: int) -> str:
        """Run the kernel on words at an address; returns ``ok``, or what it computed wrongly."""
        cuda = self._cuda
        # The seed is another one each time, so memory that still has the words of the last run is noticed.
        seed = int.from_bytes(os.urandom(4))
        given = array.array("I", range(COUNT))
        cuda.write(address, given.tobytes())
        module = cuda.load(PTX)
        try:
            cuda.launch(module, ENTRY, address, COUNT, seed)
            cuda.synchronize()
        except CudaError:
            # After a failed kernel most calls fail, too; its own error is the one to report.
            with suppress(CudaError):
                cuda.unload(module)
            raise
        cuda.unload(module)
        got = array.array("I", cuda.read(address, COUNT * given.itemsize))
        wanted = array.array("I", [(word * FACTOR + seed) & 0xFFFFFFFF for word in given])
        wrong = sum(one != other for one, other in zip(got, wanted, strict=True)) if got != wanted else 0
        return OK if wrong == 0 else f"the kernel computed {wrong} of {COUNT} words wrongly"
