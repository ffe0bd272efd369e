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
from tests.fakegpu.programs import Programs
from tests.gpus import VISIBLE_NODES, CudaError, FakeCuda, FakeMachine, build_driver_root

pytestmark = needs.GCC

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


def partition(machine: FakeMachine, index: int) -> str:
    """Make a partition on a GPU; returns its UUID."""
    nvml = machine.nvml()
    nvml.init()
    gpu = nvml.device_by_index(index)
    gpu.set_mig_mode(True)
    profile = gpu.gpu_instance_profiles()[0]
    made = gpu.create_gpu_instance(profile.id, gpu.gpu_instance_placements(profile.id)[0])
    gpu.create_compute_instance(made.id, gpu.compute_instance_profiles(made.id)[0].id)
    return gpu.mig_devices()[-1].uuid


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

    partition(machine, 0)
    nodes = [f"/dev/nvidia-caps/{one.name}" for one in (root / "dev/nvidia-caps").iterdir()]
    environment[VISIBLE_NODES] += ":" + ":".join(nodes)
    assert seen(loaded(root)) == seen(FakeCuda(machine, environment))


def test_under_mps_it_has_the_limit_of_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Programs(tmp_path, "dgx-a100")
    root = root_of(programs.machine, tmp_path / "compiled")
    try:
        assert programs.control("-d", visible="1,2")[0] == 0
        programs.ask("set_default_device_pinned_mem_limit 0 10G")
        for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
            monkeypatch.setenv(name, programs.environment()[name])
        monkeypatch.setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "1=4G")
        cuda = loaded(root)
        cuda.init()
        assert [cuda.uuid(one) for one in range(cuda.device_count())] == [programs.uuid(1), programs.uuid(2)]
        cuda.enter(0)
        assert cuda.under_mps(0)
        assert cuda.memory()[0] == 10 * GIB
        cuda.allocate(10 * GIB)
        with pytest.raises(CudaError, match="OUT_OF_MEMORY"):
            cuda.allocate(1)
        cuda.enter(1)
        assert cuda.memory()[0] == 4 * GIB
        (server,) = programs.ask("get_server_list")
        assert programs.ask(f"get_client_list {server}") == [str(os.getpid())]
    finally:
        programs.end()
