"""``gpuctl verify`` reads compiled libraries, with the calls and structures of C, and names their faults."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from driver.roots.places import LIBRARY_FOLDERS
from fakegpu.cuda.compiled import compile_libcuda
from fakegpu.machine.fake_machine import FakeMachine
from gpuctl.__main__ import commands
from gpuctl.doctor.inside.places import Places
from gpuctl.probe.cuda import LIBRARY
from tests import needs
from tests.cuda_library.library import CudaDouble, whole_gpus
from tests.driver.nvml.c_library import unload
from tests.gpuctl.documents import read_document
from tests.gpuctl.verify.subjects import machine_in, make_real_nodes, places_of
from tests.nvml_library.library import NvmlDouble, compile_nvml

pytestmark = needs.GCC
MACHINE = "l4-quad"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """NVML and libcuda."""
    folder = tmp_path_factory.mktemp("libraries")
    return compile_nvml(folder / "nvml.so"), compile_libcuda(folder / "cuda.so")


class Node:
    """A node whose NVML and libcuda are compiled doubles."""

    def __init__(self, folder: Path, compiled: tuple[Path, Path]) -> None:
        machine = machine_in(folder, MACHINE)
        self._places = places_of(folder, machine)
        self.machine, self.root = machine, Path(self._places.driver_root)
        self.nvml = NvmlDouble.lay(self.root, machine, compiled[0])
        self.cuda = _lay_cuda(self.root / LIBRARY_FOLDERS[0], machine, compiled[1])

    def verify(self) -> tuple[int, dict[str, Any]]:
        """The exit code, and the results by their names."""
        words = ["verify", "--nvml", "real", "-o", "json"]
        for one in fields(Places):
            if one.name not in ("nvml", "offers", "host_driver_root"):
                words += [f"--{one.name.replace('_', '-')}", str(getattr(self._places, one.name))]
        ran = CliRunner().invoke(commands, words, catch_exceptions=False)
        report = read_document(ran.stdout, "VerifyReport")
        assert report["fake"] is False
        return ran.exit_code, {one["check"]: one for one in report["results"]}


def _lay_cuda(folder: Path, machine: FakeMachine, compiled: Path) -> CudaDouble:
    laid = CudaDouble.lay(folder.with_name("cuda"), whole_gpus(machine), compiled)
    laid.files.rename(folder / laid.files.name)
    (folder / LIBRARY).resolve().write_bytes(compiled.read_bytes())
    return CudaDouble(folder / LIBRARY)


@pytest.fixture
def node(tmp_path: Path, compiled: tuple[Path, Path]) -> Node:
    unload()
    return Node(tmp_path, compiled)


@needs.MAKES_NODES
def test_everything_holds_over_compiled_libraries(node: Node) -> None:
    make_real_nodes(node.root, node.machine)

    code, results = node.verify()

    assert {name: one for name, one in results.items() if one["status"] == "fail"} == {}
    assert code == 0
    assert results["offered"]["status"] == "ok"
    assert results["cuda-probe"]["status"] == "ok"


@pytest.mark.parametrize(
    ("library", "call", "words", "check"),
    [
        ("nvml", "nvmlDeviceGetMinorNumber", "fail 999", "offered"),
        ("cuda", "cuLaunchKernel", "lie", "cuda-probe"),
        ("cuda", "cuMemAlloc_v2", "fail 2", "cuda-probe"),
    ],
)
def test_a_fault_of_a_library_is_named(node: Node, library: str, call: str, words: str, check: str) -> None:
    getattr(node, library).spoil(call, words)

    code, results = node.verify()

    assert code == 1
    assert results[check]["status"] == "fail", results[check]
