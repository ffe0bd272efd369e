"""The fake driver root: containers find device nodes, libraries and an nvidia-smi that notes its calls."""

from __future__ import annotations

import os
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest

from driver.hardware import pci
from driver.hardware.pci_view import pci_view
from fakegpu.driver_files.driver_root import (
    CALL_LOG,
    CDI_HOOK,
    CONTROL_NODES,
    STUBS,
    build_driver_root,
    build_sysfs,
)
from fakegpu.driver_files.elf_library import LIBRARY_FOLDER
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.machine.spec import known_machines

if TYPE_CHECKING:
    from pathlib import Path

    from driver.nvml.pci_address import PciAddress


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


def test_libraries_have_the_version_of_the_driver_and_their_sonames(
    tmp_path: Path, machine: FakeMachine
) -> None:
    folder = build_driver_root(tmp_path, machine) / LIBRARY_FOLDER
    assert (folder / "libcuda.so").resolve().name == "libcuda.so.570.133.20"
    assert (folder / "libnvidia-ml.so.1").resolve().name == "libnvidia-ml.so.570.133.20"
    machine.driver_gone()
    machine.driver_back("575.51.03")
    build_driver_root(tmp_path, machine)
    assert (folder / "libcuda.so.1").resolve().name == "libcuda.so.575.51.03"
    assert not list(folder.glob("*570*"))


def test_nvidia_smi_lists_the_gpus_and_notes_its_arguments(tmp_path: Path, machine: FakeMachine) -> None:
    root = build_driver_root(tmp_path, machine)
    said = subprocess.run(
        [root / "usr/bin/nvidia-smi", "-L"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(said) == 8
    assert said[0] == f"GPU 0: NVIDIA L40S (UUID: {machine.uuid(machine.pci(0))})"
    assert (root / CALL_LOG).read_text() == "nvidia-smi -L\n"


@pytest.mark.parametrize("words", [("nvidia-smi", "-c", "DEFAULT"), ("nvidia-cuda-mps-control", "-d")])
def test_what_cannot_reach_the_machines_state_says_so(
    tmp_path: Path, machine: FakeMachine, words: tuple[str, str]
) -> None:
    """A machine in memory is out of reach for a process, as a file is for a container without it."""
    root = build_driver_root(tmp_path, machine)
    done = subprocess.run(
        [root / "usr/bin" / words[0], words[1]], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot be reached" in done.stderr


def test_programs_are_plain_executable_files(tmp_path: Path) -> None:
    """Containers mount them one by one."""
    folder = build_driver_root(tmp_path, FakeMachine.open(f"t4@{tmp_path / 'state.json'}")) / "usr/bin"
    for path in folder.iterdir():
        assert path.is_file()
        assert not path.is_symlink()
        assert os.access(path, os.X_OK)
    assert {"nvidia-smi", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"} <= set(os.listdir(folder))


@pytest.mark.parametrize("name", STUBS)
def test_the_other_binaries_run_and_note_their_calls(tmp_path: Path, machine: FakeMachine, name: str) -> None:
    root = build_driver_root(tmp_path, machine)
    subprocess.run([root / "usr/bin" / name, "-d"], check=True)
    assert (root / CALL_LOG).read_text() == f"{name} -d\n"


def test_the_cdi_hook_is_there_only_when_asked_for(tmp_path: Path, machine: FakeMachine) -> None:
    assert not (build_driver_root(tmp_path / "without", machine) / "usr/bin" / CDI_HOOK).exists()
    assert os.access(
        build_driver_root(tmp_path / "with", machine, cdi_hook=True) / "usr/bin" / CDI_HOOK, os.X_OK
    )


@pytest.mark.parametrize("name", known_machines())
def test_sysfs_tells_what_the_machine_file_says(tmp_path: Path, name: str) -> None:
    machine = FakeMachine.open(name)
    sysfs = build_sysfs(tmp_path, machine)
    assert gpus(sysfs) == tuple(slot.pci for slot in machine.spec.slots)
    for slot in machine.spec.slots:
        assert pci.numa_node(sysfs, slot.pci) == slot.numa_node
        assert pci.pcie_root(sysfs, slot.pci) == slot.pcie_root
        assert pci.bound_driver(sysfs, slot.pci) == "nvidia"


def test_the_drm_nodes_that_sysfs_names_are_in_the_driver_root(tmp_path: Path, machine: FakeMachine) -> None:
    root, sysfs = build_driver_root(tmp_path, machine), build_sysfs(tmp_path, machine)
    named = [node for gpu in gpus(sysfs) for node in pci.drm_nodes(sysfs, gpu)]
    assert len(set(named)) == 16
    assert {*named, "by-path"} == {path.name for path in (root / "dev/dri").iterdir()}
    by_path = {path.name: path.readlink().name for path in (root / "dev/dri/by-path").iterdir()}
    assert by_path == {
        f"pci-{gpu}-{kind}": node
        for gpu in gpus(sysfs)
        for kind, node in zip(("card", "render"), pci.drm_nodes(sysfs, gpu), strict=True)
    }


def test_building_twice_changes_nothing(tmp_path: Path, machine: FakeMachine) -> None:
    def tree() -> set[str]:
        return {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}

    build_driver_root(tmp_path, machine)
    build_sysfs(tmp_path, machine)
    before = tree()
    build_driver_root(tmp_path, machine)
    build_sysfs(tmp_path, machine)
    assert tree() == before
