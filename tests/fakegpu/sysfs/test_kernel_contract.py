"""The pretended kernel does what the real one does: the cases that a guest runs on a real kernel."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakegpu.sysfs.kernel_contract import CASES, Scene
from tests.gpus import FakeKernel, FakeMachine, build_sysfs

GPU, BRIDGE, PHYSICAL = "0000:17:00.0", "0000:16:00.0", "0000:65:00.0"


@pytest.fixture(params=["in memory", "in a file"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    """A machine with a GPU whose driver lets go of it at once, since no session is open."""
    at = f"@{tmp_path / 'state.json'}" if request.param == "in a file" else ""
    machine = FakeMachine.open(f"passthrough-quad{at}")
    sysfs = build_sysfs(tmp_path, machine)

    def vfio_open() -> Callable[[], None]:
        return machine.open_function(machine.pci(GPU)).release

    kernel = FakeKernel(sysfs, machine)
    found = Scene(kernel, sysfs, GPU, "nvidia", BRIDGE, physical=PHYSICAL, vfio_open=vfio_open)
    # The driver of NVIDIA makes no virtual functions.
    kernel.load_module("pci-pf-stub", 30.0)
    found.write(found.of(PHYSICAL, "driver_override"), "pci-pf-stub\n")
    found.write(found.of_driver("nvidia", "unbind"), PHYSICAL)
    found.write(found.probe_file, PHYSICAL)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_pretended_kernel_is_as_the_real_one(scene: Scene, case: Callable[[Scene], None]) -> None:
    before = _shown(scene.sysfs)
    case(scene)
    after = _shown(scene.sysfs)
    assert {name: after[name] for name in before} == before


def _shown(sysfs: Path) -> dict[str, str]:
    """All files and links of the tree; modules that were loaded stay loaded."""
    return {
        str(path.relative_to(sysfs)): str(path.readlink()) if path.is_symlink() else path.read_text()
        for path in sysfs.rglob("*")
        if path.is_symlink() or path.is_file()
    }
