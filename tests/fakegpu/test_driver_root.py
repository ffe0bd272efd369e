"""The fake driver root: containers find device nodes, libraries and an nvidia-smi that notes its calls."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from driver.hardware import pci
from driver.hardware.pci_view import pci_view
from driver.nvml.pci_address import PciAddress
from fakegpu.driver_files.driver_root import (
    CONTROL_NODES,
    build_driver_root,
    build_sysfs,
)
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.machine.spec import known_machines


def gpus(sysfs: Path) -> tuple[PciAddress, ...]:
    """The GPUs on the bus."""
    return tuple(function.pci for function in pci_view(sysfs).physical)


@pytest.fixture
def machine() -> FakeMachine:
    """Eight GPUs whose minors do not follow the bus."""
    return FakeMachine.open("l40s-octo")


def test_every_node_is_there_and_is_a_character_device(tmp_path: Path, machine: FakeMachine) -> None:
    root = build_driver_root(tmp_path, machine)
    names = {*CONTROL_NODES, *(f"nvidia{minor}" for minor in range(8))}
    assert {path.name for path in (root / "dev").iterdir()} == names | {"dri"}
    nodes = [root / "dev" / name for name in names]
    nodes += [path for path in (root / "dev" / "dri").iterdir() if path.name != "by-path"]
    assert len(nodes) == len(names) + 16
    for node in nodes:
        status = node.stat()
        assert stat.S_ISCHR(status.st_mode)
        assert (os.major(status.st_rdev), os.minor(status.st_rdev)) == (1, 3)


@pytest.mark.parametrize("name", known_machines())
def test_sysfs_tells_what_the_machine_file_says(tmp_path: Path, name: str) -> None:
    machine = FakeMachine.open(name)
    sysfs = build_sysfs(tmp_path, machine)
    assert gpus(sysfs) == tuple(slot.pci for slot in machine.spec.slots)
    for slot in machine.spec.slots:
        assert pci.numa_node(sysfs, slot.pci) == slot.numa_node
        assert pci.pcie_root(sysfs, slot.pci) == slot.pcie_root
        assert pci.bound_driver(sysfs, slot.pci) == "nvidia"
