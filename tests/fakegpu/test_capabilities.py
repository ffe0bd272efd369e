"""The capability files of the fake kernel driver follow the instances, whoever makes or unmakes them."""

from pathlib import Path

import pytest

from fakegpu.machine.capabilities import CAPABILITIES, CAPABILITY_NODES
from tests.driver import mig_machines
from tests.gpus import FakeMachine, Placement, access_minor, build_driver_root

THREE_G = 9
ALWAYS = {"mig/config", "mig/monitor"}


def files(root: Path) -> set[str]:
    folder = root / CAPABILITIES
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("place", "minor"),
    [
        ((0, 0), 3), ((0, 0, 0), 4), ((0, 1), 12), ((1, 0), 138), ((7, 13, 0), 1066), ((31, 14), 4314),
        ((31, 14, 7), 4322),
    ],
)  # fmt: skip
def test_minors_are_those_of_the_kernel_driver(place: tuple[int, ...], minor: int) -> None:
    assert access_minor(*place) == minor


def test_files_and_nodes_come_with_instances_and_the_files_go_with_them(tmp_path: Path) -> None:
    machine = FakeMachine.open("hgx-h100")
    root = build_driver_root(tmp_path / "root", machine)
    device = mig_machines.device(machine, 2)
    device.set_mig_mode(True)
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
