"""Device nodes are found once, and anew as soon as any of them was made anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from driver.errors import NodeIncomplete
from driver.hardware.pci import drm_folder
from driver.nvml.pci_address import PciAddress
from driver.roots.driver_roots import DriverRoots
from fakegpu.driver_files.driver_root import build_device_nodes
from fakegpu.driver_files.host_layouts import HOST_LAYOUTS, lay_driver
from fakegpu.machine.fake_machine import FakeMachine
from kubeletplugin.devices.host import gpu_nodes
from kubeletplugin.devices.host.driver_files import InstalledDriver
from kubeletplugin.devices.host.gpu_nodes import DeviceFolder, DeviceNode, GpuNodes, HostNow
from tests.kubeletplugin.fake_roots import laid_driver, lay_driver_root, lay_sysfs

LONG_AGO = (1_000_000_000, 1_000_000_000)


class Scene:
    def __init__(self, folder: Path) -> None:
        self.machine = FakeMachine.open("a30-quad")
        self.root = lay_driver_root(folder / "driver", self.machine)
        self.sysfs = lay_sysfs(folder, self.machine)
        self.nodes = GpuNodes(self.sysfs)
        self.driver = laid_driver(self.root)
        self.dev = self.root / "dev"
        self.settle()

    def settle(self) -> None:
        """Let some time pass since the folders were changed."""
        for folder in (self.dev, self.dev / "dri", drm_folder(self.sysfs, self.pci())):
            os.utime(folder, LONG_AGO)

    def now(self) -> HostNow:
        return HostNow(self.driver)

    def pci(self) -> PciAddress:
        return self.machine.pci(0)

    def make_anew(self, name: str) -> None:
        """What udev or nvidia-modprobe does: another node of the same name, with the numbers of zero."""
        (self.dev / name).unlink()
        (self.dev / name).symlink_to("/dev/zero")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def numbers(nodes: tuple[DeviceNode, ...]) -> dict[str, tuple[int, int]]:
    return {node.path: (node.major, node.minor) for node in nodes}


def test_nothing_is_looked_for_again_while_the_folders_stay(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, control = scene.nodes.whole(scene.pci(), 0, scene.now()), scene.nodes.control(scene.now())

    def nobody_asks(*_: object) -> DeviceNode:
        raise AssertionError("a node was looked for again")

    monkeypatch.setattr(gpu_nodes.DeviceFolder, "find", nobody_asks)
    assert scene.nodes.whole(scene.pci(), 0, scene.now()) == whole
    assert scene.nodes.control(scene.now()) == control


@pytest.mark.parametrize("name", ["nvidia0", "dri/renderD128"])
def test_a_node_that_was_made_anew_has_its_new_numbers(scene: Scene, name: str) -> None:
    before = numbers(scene.nodes.whole(scene.pci(), 0, scene.now()))
    scene.make_anew(name)
    after = numbers(scene.nodes.whole(scene.pci(), 0, scene.now()))
    assert after == {**before, f"/dev/{name}": (1, 5)}


def test_a_control_node_that_went_is_missed(scene: Scene) -> None:
    scene.nodes.control(scene.now())
    (scene.dev / "nvidia-uvm").unlink()
    with pytest.raises(NodeIncomplete, match="nvidia-uvm"):
        scene.nodes.control(scene.now())


def test_another_minor_is_another_gpu(scene: Scene) -> None:
    first, second = (
        scene.nodes.whole(scene.pci(), 0, scene.now()),
        scene.nodes.whole(scene.pci(), 1, scene.now()),
    )
    assert (first[0].path, second[0].path) == ("/dev/nvidia0", "/dev/nvidia1")


def test_what_could_not_be_found_is_not_remembered(scene: Scene) -> None:
    (scene.dev / "nvidia0").unlink()
    with pytest.raises(NodeIncomplete):
        scene.nodes.whole(scene.pci(), 0, scene.now())
    (scene.dev / "nvidia0").symlink_to("/dev/null")
    scene.settle()
    assert (
        DeviceFolder.below(scene.root).find("/dev/nvidia0")
        == scene.nodes.whole(scene.pci(), 0, scene.now())[0]
    )


def test_a_root_without_nodes_has_those_of_the_host(tmp_path: Path) -> None:
    """A root that is a mere folder of libraries, as GKE's, has no dev."""
    machine = FakeMachine.open("a30-quad")
    host = tmp_path / "host"
    lay_driver(host, HOST_LAYOUTS["GKE"], machine.state.driver_version)
    build_device_nodes(host, machine)
    roots = DriverRoots.probed(host, tmp_path / "sys")
    nodes, now = GpuNodes(lay_sysfs(tmp_path, machine)), HostNow(InstalledDriver(roots))

    found = nodes.whole(machine.pci(0), 0, now)

    assert {node.below_root for node in (*found, *nodes.control(now))} == {
        f"{host}{node.path}" for node in (*found, *nodes.control(now))
    }
