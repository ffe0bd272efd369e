"""The fake CUDA and the binding over a compiled library do for the probe what CUDA does."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuctl.probe.cuda import Cuda, LibCuda
from tests import needs
from tests.cuda_library.library import WITHOUT_V2, CudaDouble, partition, whole_gpus
from tests.driver.mig_machines import device, with_mode_on
from tests.gpuctl.probe.contract import CLAUSES
from tests.gpus import FakeCuda, FakeMachine, compile_libcuda

MIG = "MIG-11111111-2222-3333-4444-555555555555"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_libcuda(tmp_path_factory.mktemp("library") / "cuda.so")


def h100() -> FakeMachine:
    return FakeMachine.open("hgx-h100")


def partitioned() -> FakeMachine:
    """A machine whose first GPU has two partitions."""
    machine = with_mode_on("hgx-h100")
    gpu = device(machine)
    profile = gpu.gpu_instance_profiles()[0].id
    for placement in gpu.gpu_instance_placements(profile)[:2]:
        made = gpu.create_gpu_instance(profile, placement)
        gpu.create_compute_instance(made.id, gpu.compute_instance_profiles(made.id)[0].id)
    return machine


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("make", [h100, partitioned], ids=["whole", "partition"])
def test_the_fake_keeps_the_contract(make: Callable[[], FakeMachine], clause: Callable[[Cuda], None]) -> None:
    clause(FakeCuda(make(), {}))


@needs.GCC
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("kind", ["whole", "partition"])
def test_the_binding_keeps_the_contract(
    tmp_path: Path, compiled: Path, kind: str, clause: Callable[[Cuda], None]
) -> None:
    found = whole_gpus(h100()) if kind == "whole" else [partition(h100(), MIG, 10 << 30, "1g.10gb")]
    clause(LibCuda(str(CudaDouble.lay(tmp_path, found, compiled).library)))


@needs.GCC
def test_an_old_library_gives_the_uuids_of_gpus(tmp_path: Path) -> None:
    old = compile_libcuda(tmp_path / "old.so", WITHOUT_V2)
    cuda = LibCuda(str(CudaDouble.lay(tmp_path / "old", whole_gpus(h100()), old).library))
    cuda.init()
    assert cuda.uuid(cuda.device(0)) == h100().uuid(h100().pci(0))
    assert cuda.under_mps(0) is None
