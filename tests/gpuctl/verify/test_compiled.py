"""``gpuctl verify`` reads compiled libraries, with the calls and structures of C."""

from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

from tests import needs
from tests.clusters import commands
from tests.driver.nvml.c_library import unload
from tests.gpuctl.documents import read_document
from tests.gpuctl.verify.subjects import flags_of, lay_cuda, machine_in, make_real_nodes, places_of
from tests.gpus import compile_libcuda
from tests.nvml_library.library import NvmlDouble, compile_nvml

pytestmark = needs.GCC


@needs.MAKES_NODES
def test_everything_holds_over_compiled_libraries(tmp_path: Path) -> None:
    unload()
    machine = machine_in(tmp_path, "l4-quad")
    places = places_of(tmp_path, machine)
    root = Path(places.driver_root)
    NvmlDouble.lay(root, machine, compile_nvml(tmp_path / "nvml.so"))
    lay_cuda(root, machine, compile_libcuda(tmp_path / "cuda.so"))
    make_real_nodes(root, machine)
    words = ["verify", "-o", "json"]
    for name, value in flags_of(replace(places, nvml="real")).items():
        words += [f"--{name.replace('_', '-')}", value]

    ran = CliRunner().invoke(commands, words, catch_exceptions=False)

    report = read_document(ran.stdout, "VerifyReport")
    results = {one["check"]: one for one in report["results"]}
    assert report["fake"] is False
    assert {name: one for name, one in results.items() if one["status"] == "fail"} == {}
    assert ran.exit_code == 0
    assert results["offered"]["status"] == "ok"
    assert results["cuda-probe"]["status"] == "ok"
