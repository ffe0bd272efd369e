"""What CUDA does for the probe, whoever implements it: each function is one clause, with a fresh process."""

import array
import re
from collections.abc import Callable

import pytest

from gpuctl.probe.cuda import OUT_OF_MEMORY, Cuda
from gpuctl.probe.run import ENTRY, FACTOR, PTX
from tests.gpus import CudaError

_NOT_INITIALIZED, _INVALID_DEVICE, _INVALID_CONTEXT, _NOT_FOUND = 3, 101, 201, 500
_MIB = 1 << 20


def _refused(call: Callable[[], object]) -> int | None:
    with pytest.raises(CudaError) as caught:
        call()
    assert caught.value.name.startswith("CUDA_ERROR_")
    return caught.value.code


def _entered(cuda: Cuda) -> int:
    cuda.init()
    device = cuda.device(0)
    cuda.enter(device)
    return device


def refuses_calls_before_init(cuda: Cuda) -> None:
    assert _refused(cuda.device_count) == _NOT_INITIALIZED


def describes_each_device(cuda: Cuda) -> None:
    cuda.init()
    assert cuda.version() >= (12, 0)
    devices = [cuda.device(ordinal) for ordinal in range(cuda.device_count())]
    assert len({cuda.uuid(one) for one in devices}) == len(devices) > 0
    for one in devices:
        assert re.fullmatch(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", cuda.uuid(one))
        assert (" MIG " in cuda.name(one)) == cuda.uuid(one).startswith("MIG-")
        assert cuda.compute_capability(one) >= (7, 0)
        assert cuda.total_bytes(one) > 1 << 30
        assert cuda.under_mps(one) in (None, False)
    assert _refused(lambda: cuda.device(len(devices))) == _INVALID_DEVICE


def has_no_memory_without_a_context(cuda: Cuda) -> None:
    cuda.init()
    assert _refused(lambda: cuda.allocate(_MIB)) == _INVALID_CONTEXT
    device = _entered(cuda)
    cuda.enter(device)
    cuda.leave(device)
    assert _refused(lambda: cuda.allocate(_MIB)) == _INVALID_CONTEXT


def counts_memory(cuda: Cuda) -> None:
    device = _entered(cuda)
    free, total = cuda.memory()
    assert free <= total == cuda.total_bytes(device)
    address = cuda.allocate(64 * _MIB)
    assert cuda.memory()[0] <= free - 64 * _MIB
    cuda.free(address)
    assert cuda.memory()[0] == free
    assert _refused(lambda: cuda.free(address)) == 1
    assert _refused(lambda: cuda.allocate(total + 1)) == OUT_OF_MEMORY
    cuda.allocate(_MIB)
    cuda.leave(device)
    cuda.enter(device)
    assert cuda.memory()[0] == free


def keeps_what_is_written(cuda: Cuda) -> None:
    _entered(cuda)
    address = cuda.allocate(_MIB)
    cuda.write(address, b"abcdef")
    cuda.set_bytes(address + 1, 0x2D, 2)
    assert cuda.read(address, 6) == b"a--def"
    assert _refused(lambda: cuda.read(address, _MIB + 1)) == 1


def runs_the_kernel_on_the_words_that_it_is_given(cuda: Cuda) -> None:
    _entered(cuda)
    address = cuda.allocate(_MIB)
    given = array.array("I", range(1000))
    cuda.write(address, given.tobytes() + b"left")
    module = cuda.load(PTX)
    assert _refused(lambda: cuda.launch(module, "another", address, 1, 1)) == _NOT_FOUND
    cuda.launch(module, ENTRY, address, len(given), 7)
    cuda.synchronize()
    cuda.unload(module)
    got = array.array("I", cuda.read(address, 4 * len(given)))
    assert list(got) == [(word * FACTOR + 7) % 2**32 for word in given]
    assert cuda.read(address + 4 * len(given), 4) == b"left"
    assert _refused(lambda: cuda.load("no PTX")) == 218


CLAUSES = (
    refuses_calls_before_init,
    describes_each_device,
    has_no_memory_without_a_context,
    counts_memory,
    keeps_what_is_written,
    runs_the_kernel_on_the_words_that_it_is_given,
)
