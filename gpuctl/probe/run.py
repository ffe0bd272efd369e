"""Uses every device that CUDA shows: allocates memory, runs a kernel, and compares what it computed."""

from __future__ import annotations

import array
import os
from collections.abc import Callable
from contextlib import suppress

from driver.errors import CudaError
from gpuctl.probe.answer import Answer, CallFailed, Device
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


class Probe:
    """The devices that were used; they keep their memory until ``release``."""

    def __init__(self, open_cuda: Callable[[], Cuda]) -> None:
        self._open = open_cuda
        self._entered: list[tuple[int, list[int]]] = []
        """CUDA's number of each device that was entered, and the addresses of its memory."""
        self.version: str | None = None
        self.devices: list[Device] = []
        self.error: CudaError | None = None

    def run(self, *, fill: bool) -> None:
        """Use all devices. The first error is kept; a device that fails does not hide the others."""
        try:
            self._cuda = self._open()
            self._cuda.init()
            self.version = ".".join(map(str, self._cuda.version()))
            count = self._cuda.device_count()
        except CudaError as error:
            self.error = error
            return
        for ordinal in range(count):
            found = Device()
            self.devices.append(found)
            try:
                self._use(found, ordinal, fill=fill)
            except CudaError as error:
                self._note(error)
                found.kernel = error.what

    def release(self) -> None:
        """Free all memory and end the contexts."""
        for device, addresses in self._entered:
            try:
                # Memory belongs to a context, and another device's may be current.
                self._cuda.enter(device)
                while addresses:
                    self._cuda.free(addresses.pop())
                self._cuda.leave(device)
            except CudaError as error:
                self._note(error)
        self._entered.clear()

    @property
    def is_well(self) -> bool:
        """Whether nothing failed and all kernels computed what they should. Without a device nothing is."""
        return self.error is None and all(one.kernel == OK for one in self.devices)

    def answer(self) -> Answer:
        """All that was found."""
        error = self.error
        failed = None if error is None else CallFailed(error.call, error.code, error.name)
        return Answer(self.version, tuple(self.devices), failed)

    def _note(self, error: CudaError) -> None:
        if self.error is None:
            self.error = error

    def _use(self, found: Device, ordinal: int, *, fill: bool) -> None:
        cuda, addresses = self._cuda, list[int]()
        device = cuda.device(ordinal)
        found.uuid, found.name = cuda.uuid(device), cuda.name(device)
        found.compute_capability = ".".join(map(str, cuda.compute_capability(device)))
        found.total_bytes = cuda.total_bytes(device)
        found.under_mps = cuda.under_mps(device)
        cuda.enter(device)
        self._entered.append((device, addresses))
        found.free_bytes, _ = cuda.memory()

        def allocate(size_bytes: int) -> None:
            """Allocate, and write to both ends, which shows that the memory is there."""
            address = cuda.allocate(size_bytes)
            addresses.append(address)
            found.allocated_bytes += size_bytes
            for place in (address, address + size_bytes - _TOUCHED_BYTES):
                cuda.set_bytes(place, 0xA5, _TOUCHED_BYTES)

        allocate(LEAST_CHUNK_BYTES if fill else USUAL_BYTES)
        found.kernel = self._compute(addresses[0])
        if fill:
            self._fill(found.total_bytes, allocate)

    def _fill(self, total_bytes: int, allocate: Callable[[int], None]) -> None:
        """Allocate until there is no more, in ever smaller chunks."""
        chunk = 1 << (total_bytes.bit_length() - 1)
        while chunk >= LEAST_CHUNK_BYTES:
            try:
                allocate(chunk)
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
