"""``gpuctl verify`` reads compiled libraries, with the calls and structures of C."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests import needs
from tests.clusters import commands
from tests.driver.nvml.c_library import unload
from tests.gpuctl.documents import read_document
from tests.gpuctl.verify.subjects import flags_of, lay_cuda, machine_in, make_real_nodes, places_of
from tests.gpus import compile_libcuda
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
        self.cuda = lay_cuda(self.root, machine, compiled[1])

    def verify(self) -> tuple[int, dict[str, Any]]:
        """The exit code, and the results by their names."""
        words = ["verify", "-o", "json"]
        for name, value in flags_of(replace(self._places, nvml="real")).items():
            words += [f"--{name.replace('_', '-')}", value]
        ran = CliRunner().invoke(commands, words, catch_exceptions=False)
        report = read_document(ran.stdout, "VerifyReport")
        assert report["fake"] is False
        return ran.exit_code, {one["check"]: one for one in report["results"]}


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
