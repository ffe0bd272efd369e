"""The check of CUDA uses one idle GPU, compares it with NVML, and names what goes wrong."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuctl.doctor.check import Result, run_checks
from gpuctl.doctor.inside.reading import look_at_node
from gpuctl.probe.answer import SECONDS
from gpuctl.verify.checks.cuda_checks import cuda_checks
from gpuctl.verify.subject import Subject
from tests import needs
from tests.gpuctl.doctor.nodes import entry
from tests.gpuctl.verify.subjects import COMPILER, lay_cuda, machine_in, places_of
from tests.gpus import compile_libcuda
from tests.plugin import Entry


class Node:
    """A node with a fake machine, its driver root and its sysfs."""

    def __init__(self, folder: Path, name: str = "l4-quad") -> None:
        self.machine = machine_in(folder, name)
        self.places = places_of(folder, self.machine)

    def result(self, seconds: float = SECONDS, cuda: str = "fake", claimed: Entry | None = None) -> Result:
        """What the check finds; ``cuda`` is ``real`` for the libcuda below the driver root."""
        places = self.places if cuda == "fake" else replace(self.places, nvml="real")
        seen = look_at_node(self.places)
        if claimed is not None:
            seen = replace(seen, journal={claimed.uid: claimed})
        subject = Subject(places, seen, self.machine.nvml)
        (found,) = run_checks("cuda", cuda_checks(seconds), subject)
        return found


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_it_uses_the_first_gpu_that_nobody_uses(node: Node) -> None:
    node.machine.set_processes(0, (4711,))
    found = node.result()
    assert (found.status, found.details) == ("ok", ())
    assert found.message == (
        f"{node.machine.pci(1)}: NVIDIA L4, CUDA 13.4, compute capability 8.9, "
        "22564 MiB for CUDA of 23034 MiB; the kernel computed what it should, and its memory is free again"
    )


def test_it_uses_no_gpu_of_a_claim_also_not_the_others_of_one_device(node: Node) -> None:
    first, second, third = (node.machine.pci(index) for index in range(3))
    claimed = entry(pci=str(first), more_gpus=(str(second),))

    found = node.result(claimed=claimed)

    assert found.message.startswith(f"{third}: NVIDIA L4")


def test_it_uses_no_gpu_that_somebody_may_use(tmp_path: Path) -> None:
    node = Node(tmp_path, "a30-quad")
    nvml = node.machine.nvml()
    nvml.init()
    nvml.device_by_index(1).set_compute_mode("prohibited")
    nvml.shutdown()
    for index in (0, 2, 3):
        node.machine.set_processes(index, (4711,))
    found = node.result()
    assert (found.status, found.message) == ("skipped", "no whole GPU is idle")
    assert found.details[:2] == (
        f"{node.machine.pci(0)}: processes use it: 4711",
        f"{node.machine.pci(1)}: its compute mode is prohibited",
    )


def test_a_gpu_that_hangs_ends_the_probe_and_not_the_check(node: Node) -> None:
    node.machine.hang("cuCtxSynchronize")
    found = node.result(seconds=0.5)
    assert found.status == "fail"
    assert found.message.endswith("and was killed")


@needs.GCC
def test_libcuda_below_a_driver_root_is_loaded_with_what_it_loads_itself(node: Node, tmp_path: Path) -> None:
    double = lay_cuda(Path(node.places.driver_root), node.machine, compile_libcuda(tmp_path / "cuda.so"))
    (double.files / "compiler").write_text(COMPILER)
    folder = double.library.parent
    # Another system's libc, which this machine's programs must not load.
    (folder / "libc.so.6").write_text("not a library")
    found = node.result(cuda="real")
    assert found.status == "ok", found
    (folder / COMPILER).unlink()
    assert "CUDA_ERROR_JIT_COMPILER_NOT_FOUND (221)" in node.result(cuda="real").message


@needs.GCC
def test_memory_that_cuda_and_nvml_have_differently_is_named(node: Node, tmp_path: Path) -> None:
    double = lay_cuda(Path(node.places.driver_root), node.machine, compile_libcuda(tmp_path / "cuda.so"))
    double.spoil("cuDeviceTotalMem_v2", "lie")
    found = node.result(cuda="real")
    message = f"{node.machine.pci(0)}: CUDA has 45128 MiB, NVML says 23034 MiB"
    assert (found.status, found.message) == ("fail", message)
