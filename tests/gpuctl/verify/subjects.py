"""Fake nodes as `gpuctl verify` sees them: a machine with its state in a file, and its files in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from driver.nvml.api import Nvml
from fakegpu.driver_files.driver_root import build_driver_root, build_sysfs
from fakegpu.machine.fake_machine import FakeMachine
from gpuctl.doctor.inside.places import Places
from gpuctl.doctor.inside.reading import look_at_node
from gpuctl.verify.subject import Subject


def machine_in(folder: Path, name: str) -> FakeMachine:
    """A machine whose state is in a file, so that whoever opens its flag sees the same machine."""
    return FakeMachine.open(f"{name}@{folder / 'state.json'}")


def places_of(folder: Path, machine: FakeMachine) -> Places:
    """The places of a node with this machine, all below a folder."""
    root, sysfs = build_driver_root(folder / "driver", machine), build_sysfs(folder, machine)
    for name in ("plugins", "registry", "cdi"):
        (folder / name).mkdir()
    return Places(
        driver_root=str(root),
        host_driver_root="",
        host_root=folder,
        plugins_dir=folder / "plugins",
        registry_dir=folder / "registry",
        cdi_dir=folder / "cdi",
        mps_dir=folder / "mps",
        sysfs_root=sysfs,
        nvml=machine.flag or "",
    )


def subject_of(folder: Path, machine: FakeMachine, open_nvml: Callable[[], Nvml] | None = None) -> Subject:
    """The node with this machine, as it is now; ``open_nvml`` gives another NVML than the machine's."""
    places = places_of(folder, machine)
    return Subject(places, look_at_node(places), open_nvml or machine.nvml)
