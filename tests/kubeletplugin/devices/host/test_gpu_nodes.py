"""Device nodes are found once, and anew as soon as any of them was made anew."""

import os
import stat
from pathlib import Path

import pytest

from driver.hardware.pci import drm_folder
from fakegpu.machine.capabilities import null_device
from kubeletplugin.devices.host.gpu_nodes import DeviceFolder, GpuNodes, HostNow, VfioNodes
from tests import needs
from tests.gpus import (
    HOST_LAYOUTS,
    DriverRoots,
    FakeMachine,
    NodeIncomplete,
    PciAddress,
    build_device_nodes,
    lay_driver,
)
from tests.kubeletplugin.fake_roots import laid_driver, lay_driver_root, lay_sysfs
from tests.plugin import DeviceNode, InstalledDriver

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


UVM, TOOLS = "nvidia-uvm", "nvidia-uvm-tools"
DEVICES = (
    "Character devices:\n  1 mem\n195 nvidia\n236 nvidia-caps\n238 nvidia-uvm\n\nBlock devices:\n  8 sd\n"
)


class Host:
    """A host whose uvm nodes nobody has made."""

    def __init__(self, folder: Path) -> None:
        machine = FakeMachine.open("t4")
        root = lay_driver_root(folder / "driver", machine)
        self.nodes = GpuNodes(lay_sysfs(folder, machine))
        self.driver = laid_driver(root)
        self.dev, self.proc = root / "dev", root / "proc"
        for name in (UVM, TOOLS):
            (self.dev / name).unlink()

    def load_module(self, parameters: str = "") -> None:
        """What a driver shows once nvidia-uvm is loaded."""
        (self.proc / "driver/nvidia").mkdir(parents=True, exist_ok=True)
        (self.proc / "devices").write_text(DEVICES)
        (self.proc / "driver/nvidia/params").write_text(parameters)

    def control(self) -> dict[str, tuple[int, int]]:
        """The control nodes with their numbers."""
        found = self.nodes.control(HostNow(self.driver))
        return {Path(node.path).name: (node.major, node.minor) for node in found}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@needs.ROOT
def test_missing_nodes_are_made_with_the_numbers_of_the_module_for_everybody(host: Host) -> None:
    host.load_module()

    found = host.control()

    assert (found[UVM], found[TOOLS]) == ((238, 0), (238, 1))
    assert {stat.S_IMODE((host.dev / name).stat().st_mode) for name in (UVM, TOOLS)} == {0o666}


@needs.ROOT
def test_owner_and_mode_are_those_of_the_drivers_parameters(host: Host) -> None:
    host.load_module("DeviceFileUID: 0\nDeviceFileGID: 44\nDeviceFileMode: 432\nModifyDeviceFiles: 1\n")

    host.control()

    made = (host.dev / UVM).stat()
    assert (made.st_gid, stat.S_IMODE(made.st_mode)) == (44, 0o660)


def test_nothing_is_made_while_the_module_is_not_loaded_or_where_the_parameters_forbid_it(host: Host) -> None:
    for missing in ("is missing .* load the NVIDIA kernel modules", "is missing"):
        with pytest.raises(NodeIncomplete, match=f"/dev/nvidia-uvm {missing}"):
            host.control()
        host.load_module("ModifyDeviceFiles: 0\n")


@needs.ROOT
def test_a_node_of_an_earlier_load_is_not_given_to_a_container(host: Host) -> None:
    host.load_module()
    os.mknod(host.dev / UVM, 0o666 | stat.S_IFCHR, os.makedev(511, 0))

    with pytest.raises(NodeIncomplete, match=r"nvidia-uvm is 511:0, but /proc/devices says 238:0.*remove it"):
        host.control()


def lay(root: Path, *paths: str) -> None:
    for path in paths:
        null_device(root / "dev" / path)


def found(nodes: VfioNodes, *, with_api: bool = True) -> list[str]:
    return [node.below_root for node in nodes.of_group(12, with_api=with_api)]


def test_the_nodes_lie_beside_those_of_the_nvidia_driver_or_below_the_hosts_root(tmp_path: Path) -> None:
    lay(tmp_path, "vfio/vfio")
    nodes = VfioNodes(InstalledDriver.below(tmp_path))
    with pytest.raises(NodeIncomplete, match="/dev/vfio/12 is missing"):
        found(nodes)
    lay(tmp_path, "vfio/12")
    without = VfioNodes(InstalledDriver(DriverRoots.probed(tmp_path, tmp_path / "sys")))
    assert found(nodes) == found(without) == [f"{tmp_path}/dev/vfio/12", f"{tmp_path}/dev/vfio/vfio"]
    assert found(nodes, with_api=False) == [f"{tmp_path}/dev/vfio/12"]


def test_iommufd_needs_the_node_of_the_iommu_and_of_every_function(tmp_path: Path) -> None:
    nodes = VfioNodes(InstalledDriver.below(tmp_path))
    lay(tmp_path, "vfio/devices/vfio0", "vfio/devices/vfio1")
    assert nodes.of_iommufd(["vfio0", "vfio1"], with_api=True) is None
    lay(tmp_path, "iommu")
    both = nodes.of_iommufd(["vfio0", "vfio1"], with_api=True)
    assert [node.path for node in both or ()] == [
        "/dev/vfio/devices/vfio0",
        "/dev/vfio/devices/vfio1",
        "/dev/iommu",
    ]
    assert nodes.of_iommufd(["vfio0", "vfio2"], with_api=True) is None
    assert nodes.of_iommufd(["vfio0", None], with_api=True) is None
    one = nodes.of_iommufd(["vfio1"], with_api=False)
    assert [node.path for node in one or ()] == ["/dev/vfio/devices/vfio1"]
