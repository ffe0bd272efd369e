"""The compiled libcuda shows a process the devices of its container, as the fake CUDA does."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from fakegpu.cuda.compiled import SONAME, compiled_libcuda
from fakegpu.driver_files.elf_library import LIBRARY_FOLDER
from gpuctl.probe.cuda import Cuda, LibCuda
from tests import needs
from tests.controller.mig_node import cut
from tests.fakegpu.programs import Programs
from tests.gpus import VISIBLE_NODES, CudaError, FakeCuda, FakeMachine, build_driver_root

GIB = 1 << 30


def root_of(machine: FakeMachine, folder: Path) -> Path:
    return build_driver_root(folder, machine, libcuda=compiled_libcuda())


def loaded(root: Path) -> LibCuda:
    """The library that a container gets which starts now: without other files beside it."""
    container = Path(tempfile.mkdtemp(dir=root))
    return LibCuda(str(shutil.copy(root / LIBRARY_FOLDER / SONAME, container)))


def seen(cuda: Cuda) -> list[tuple[str, str, int, tuple[int, int]]]:
    """The devices that a process sees; empty without any."""
    try:
        cuda.init()
    except CudaError as error:
        assert error.name == "CUDA_ERROR_NO_DEVICE"
        return []
    devices = [cuda.device(ordinal) for ordinal in range(cuda.device_count())]
    return [
        (cuda.uuid(one), cuda.name(one), cuda.total_bytes(one), cuda.compute_capability(one))
        for one in devices
    ]


@needs.GCC
@pytest.mark.parametrize("chosen", [None, "", "1,0", "1,1,0", "GPU-1,0", "{3:.12},0", "MIG-,0", "2"])
def test_it_sees_what_the_fake_cuda_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None
) -> None:
    machine = FakeMachine.open("hgx-h100")
    root = root_of(machine, tmp_path)
    environment = {VISIBLE_NODES: "/dev/nvidia0:/dev/nvidia1:/dev/nvidia3"}
    for index in (2, 4, 5, 6, 7):
        (root / f"dev/nvidia{index}").unlink()
    if chosen is not None:
        uuids = [machine.uuid(machine.pci(index)) for index in range(8)]
        environment["CUDA_VISIBLE_DEVICES"] = chosen.format(*uuids)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", environment["CUDA_VISIBLE_DEVICES"])
    assert seen(loaded(root)) == seen(FakeCuda(machine, environment))

    cut(machine, 0, slices=1, start=0)
    nodes = [f"/dev/nvidia-caps/{one.name}" for one in (root / "dev/nvidia-caps").iterdir()]
    environment[VISIBLE_NODES] += ":" + ":".join(nodes)
    assert seen(loaded(root)) == seen(FakeCuda(machine, environment))


@pytest.mark.parametrize("kind", ["fake", pytest.param("compiled", marks=needs.GCC)])
def test_under_mps_it_has_the_limits_of_the_daemon_and_sees_what_that_serves(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    assert programs.control("-d", visible="1,2")[0] == 0
    programs.ask("set_default_device_pinned_mem_limit 0 10G")
    for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
        monkeypatch.setenv(name, programs.environment()[name])
    monkeypatch.setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "1=4G")
    machine = programs.machine
    cuda: Cuda = (
        FakeCuda(machine, os.environ) if kind == "fake" else loaded(root_of(machine, tmp_path / "compiled"))
    )
    cuda.init()
    assert [cuda.uuid(one) for one in range(cuda.device_count())] == [programs.uuid(1), programs.uuid(2)]
    cuda.enter(0)
    assert cuda.under_mps(0)
    (server,) = programs.ask("get_server_list")
    assert programs.ask(f"get_client_list {server}") == [str(os.getpid())]
    assert cuda.memory()[0] == 10 * GIB
    cuda.allocate(10 * GIB)
    with pytest.raises(CudaError, match="OUT_OF_MEMORY"):
        cuda.allocate(1)
    cuda.enter(1)
    assert cuda.memory()[0] == 4 * GIB
    for one in (0, 1):
        cuda.leave(one)
