"""The nodes of nvidia-uvm are made where the module is loaded, as the driver's parameters say."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from driver.errors import NodeIncomplete
from fakegpu.machine.fake_machine import FakeMachine
from kubeletplugin.devices.host.gpu_nodes import GpuNodes, HostNow
from tests import needs
from tests.kubeletplugin.fake_roots import laid_driver, lay_driver_root, lay_sysfs

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


def test_nothing_is_made_while_the_module_is_not_loaded(host: Host) -> None:
    with pytest.raises(NodeIncomplete, match=r"/dev/nvidia-uvm is missing .* load the NVIDIA kernel modules"):
        host.control()


def test_nothing_is_made_where_the_parameters_forbid_it(host: Host) -> None:
    host.load_module("ModifyDeviceFiles: 0\n")

    with pytest.raises(NodeIncomplete, match="/dev/nvidia-uvm is missing"):
        host.control()


@needs.ROOT
def test_a_node_of_an_earlier_load_is_not_given_to_a_container(host: Host) -> None:
    host.load_module()
    os.mknod(host.dev / UVM, 0o666 | stat.S_IFCHR, os.makedev(511, 0))

    with pytest.raises(NodeIncomplete, match=r"nvidia-uvm is 511:0, but /proc/devices says 238:0.*remove it"):
        host.control()
