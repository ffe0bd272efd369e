"""A board is asked of NVML once, until the kernel binds a driver to its function anew."""

from pathlib import Path

import pytest

from driver.hardware.boards import Boards
from tests.gpus import Discovery, DriverNotLoaded, FakeMachine, Guard
from tests.kubeletplugin.fake_roots import bind_again, lay_sysfs, own_sysfs


class Scene:
    def __init__(self, folder: Path) -> None:
        self.machine = FakeMachine.open("a30-quad")
        self.sysfs = lay_sysfs(folder, self.machine)
        self.discovery = Discovery(self.machine.nvml(), self.sysfs, Guard(5.0))
        self.boards = Boards(self.discovery, self.sysfs)
        self.pci = self.machine.pci(0)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_nvml_is_asked_once_for_each_board(scene: Scene) -> None:
    first = scene.boards.identity(scene.pci)
    assert first == scene.discovery.identity(scene.pci)
    scene.machine.fail("uuid")
    assert scene.boards.identity(scene.pci) == first


def test_a_board_that_was_exchanged_is_another(scene: Scene) -> None:
    scene.boards.identity(scene.pci)
    uuid = scene.machine.replace_board(0)
    bind_again(scene.sysfs, scene.pci)
    assert scene.boards.identity(scene.pci).uuid == uuid


def test_a_minor_that_moved_with_the_driver_is_followed(scene: Scene) -> None:
    assert scene.boards.identity(scene.pci).minor == 0
    scene.machine.set_minors({0: 1, 1: 0})
    bind_again(scene.sysfs, scene.pci)
    assert scene.boards.identity(scene.pci).minor == 1


def test_without_a_bound_driver_nvml_decides(scene: Scene) -> None:
    scene.boards.identity(scene.pci)
    own_sysfs(scene.sysfs)
    (scene.sysfs / "bus/pci/devices" / str(scene.pci) / "driver").unlink()
    scene.machine.driver_gone()
    with pytest.raises(DriverNotLoaded):
        scene.boards.identity(scene.pci)
