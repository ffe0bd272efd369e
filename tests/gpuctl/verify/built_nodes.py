"""Nodes with a driver root and sysfs in folders, over a fake machine, as ``gpuctl verify`` reads them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from fakegpu.driver_files.driver_root import build_driver_root, build_sysfs
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.nvml.flag import nvml_from_flag
from gpuctl.doctor.inside.places import read_places
from gpuctl.doctor.inside.reading import look_at_node
from gpuctl.verify.subject import Subject


def built_machine(folder: Path, name: str) -> FakeMachine:
    """A machine whose state is in a file, with its driver root and its sysfs below the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    machine = FakeMachine.open(f"fake:{name}@{folder / 'state.json'}")
    build_driver_root(folder / "driver", machine)
    build_sysfs(folder, machine)
    return machine


def subject_of(folder: Path, machine: FakeMachine) -> Subject:
    """The node as it is now."""
    flag = str(machine.flag)
    given = {
        "driver_root": str(folder / "driver"),
        "sysfs_root": str(folder / "sys"),
        "host_root": str(folder),
        "nvml": flag,
        **{name: str(folder / name) for name in ("plugins_dir", "registry_dir", "cdi_dir", "mps_dir")},
    }
    places = read_places(given, ())
    return Subject(places, look_at_node(places), partial(nvml_from_flag, flag))
