"""The binding over a compiled library keeps the contract: structures and arguments are those of C."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs
from tests.driver.nvml.contract_memory import MEMORY_CLAUSES, MakeGroup
from tests.gpus import DriverRoots, FakeMachine, MemoryLimits, Nvml, RealNvml
from tests.nvml_library.library import NvmlDouble, compile_nvml
from tools.hardware.contract.run import check_contract

pytestmark = needs.GCC

MACHINE, OLDER = "l4-quad", "l40s-octo"
GROUP, ROOT = "/sys/fs/cgroup/pod/a", "/sys/fs/cgroup"
GIB = 1 << 30


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A library with memory limits, and one that is older."""
    folder = tmp_path_factory.mktemp("libraries")
    return {
        MACHINE: compile_nvml(folder / "nvml.so"),
        OLDER: compile_nvml(folder / "older.so", "-DWITHOUT_LIMITS"),
    }


@pytest.fixture(params=[MACHINE, OLDER])
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def double(tmp_path: Path, compiled: dict[str, Path], machine: str) -> NvmlDouble:
    """A library of its own for each test: the linker keeps what it has loaded."""
    double = NvmlDouble.lay(tmp_path / "root", FakeMachine.open(machine), compiled[machine])
    double.pretend_cgroups(tmp_path / "cgroups")
    (tmp_path / "cgroups/pod/a").mkdir(parents=True)
    return double


@pytest.fixture
def nvml(tmp_path: Path, double: NvmlDouble) -> RealNvml:
    assert double.library.is_file()
    return RealNvml(DriverRoots.fixed(tmp_path / "root"))


def test_the_binding_keeps_the_contract(tmp_path: Path, double: NvmlDouble) -> None:
    assert double.library.is_file()
    results = check_contract(lambda: RealNvml(DriverRoots.fixed(tmp_path / "root")))

    assert [one for one in results if one.outcome not in ("kept", "nothing to check")] == []


@pytest.mark.parametrize("clause", MEMORY_CLAUSES, ids=lambda clause: clause.__name__)
def test_the_binding_keeps_the_contract_of_memory_limits(
    tmp_path: Path, nvml: RealNvml, clause: Callable[[Nvml, MakeGroup], None]
) -> None:
    def made(path: str) -> str:
        (tmp_path / "cgroups" / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
        return f"{ROOT}{path}"

    clause(nvml, made)


@pytest.mark.parametrize("machine", [MACHINE], indirect=True)
def test_the_library_is_told_what_the_driver_means(nvml: RealNvml, double: NvmlDouble) -> None:
    nvml.init()
    device = nvml.device_by_index(1)
    device.set_memory_limits(GROUP, GIB, 20 * GIB + 1)
    double.use(device.uuid(), GROUP, 3 * GIB)

    assert device.memory_limits(GROUP) == MemoryLimits(GIB, 20 * GIB + 1, 3 * GIB)
    told = [(one.what, one.uuid, one.code, one.soft_bytes, one.hard_bytes) for one in double.record()]
    assert told == [(what, device.uuid(), 0, GIB, 20 * GIB + 1) for what in ("set", "get")]
