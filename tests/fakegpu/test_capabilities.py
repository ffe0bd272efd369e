"""The capability files of the fake kernel driver follow the instances, whoever makes or unmakes them."""

from pathlib import Path

import pytest

from fakegpu.machine.capabilities import CAPABILITIES, CAPABILITY_NODES
from tests.gpus import FakeMachine, NvmlDevice, Placement, access_minor, build_driver_root

THREE_G = 9
ALWAYS = {"mig/config", "mig/monitor"}


def gpu(machine: FakeMachine, index: int) -> NvmlDevice:
    nvml = machine.nvml()
    nvml.init()
    device = nvml.device_by_index(index)
    device.set_mig_mode(True)
    return device


def files(root: Path) -> set[str]:
    folder = root / CAPABILITIES
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def machine() -> FakeMachine:
    return FakeMachine.open("hgx-h100")


@pytest.fixture
def root(tmp_path: Path, machine: FakeMachine) -> Path:
    """The driver root of a machine, built before there is any instance."""
    return build_driver_root(tmp_path / "root", machine)


@pytest.mark.parametrize(
    ("place", "minor"),
    [
        ((0, 0), 3), ((0, 0, 0), 4), ((0, 1), 12), ((1, 0), 138), ((7, 13, 0), 1066), ((31, 14), 4314),
        ((31, 14, 7), 4322),
    ],
)  # fmt: skip
def test_minors_are_those_of_the_kernel_driver(place: tuple[int, ...], minor: int) -> None:
    assert access_minor(*place) == minor


def test_files_and_nodes_come_with_instances_and_the_files_go_with_them(
    root: Path, machine: FakeMachine
) -> None:
    device = gpu(machine, 2)
    instance = device.create_gpu_instance(THREE_G, Placement(4, 4))
    gi = f"gpu2/mig/gi{instance.id}"
    assert files(root) == {*ALWAYS, f"{gi}/access"}
    device.create_compute_instance(instance.id, 2)
    assert files(root) == {*ALWAYS, f"{gi}/access", f"{gi}/ci0/access"}
    minor = access_minor(2, instance.id, 0)
    assert (root / CAPABILITIES / gi / "ci0/access").read_text() == (
        f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
    )
    assert (root / CAPABILITY_NODES / f"nvidia-cap{minor}").is_char_device()
    device.destroy_compute_instance(instance.id, 0)
    assert files(root) == {*ALWAYS, f"{gi}/access"}
    device.destroy_gpu_instance(instance.id)
    assert files(root) == ALWAYS
    assert not (root / CAPABILITIES / "gpu2").exists()
