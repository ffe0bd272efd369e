"""Fake nodes as `gpuctl verify` sees them: a machine with its state in a file, and its files in a folder."""

import os
import stat
from dataclasses import fields
from pathlib import Path

from driver.roots.places import LIBRARY_FOLDERS
from gpuctl.doctor.inside.places import Places
from gpuctl.doctor.inside.reading import look_at_node
from gpuctl.probe.cuda import LIBRARY
from gpuctl.verify.subject import Subject
from kubeletplugin.devices.host.gpu_nodes import NVIDIA_MAJOR
from tests.cuda_library.library import CudaDouble, whole_gpus
from tests.gpus import FakeMachine, build_driver_root, build_sysfs

COMPILER = "libnvidia-ptxjitcompiler.so.1"


def machine_in(folder: Path, name: str) -> FakeMachine:
    """A machine whose state is in a file, so that whoever opens its flag sees the same machine."""
    return FakeMachine.open(f"{name}@{folder / 'state.json'}")


def built_machine(folder: Path, name: str) -> FakeMachine:
    """Such a machine, whose driver root and sysfs are below the folder already."""
    folder.mkdir(parents=True, exist_ok=True)
    machine = machine_in(folder, name)
    _build(folder, machine)
    return machine


def _build(folder: Path, machine: FakeMachine) -> None:
    build_driver_root(folder / "driver", machine)
    build_sysfs(folder, machine)


def places_of(folder: Path, machine: FakeMachine) -> Places:
    """The places of a node with this machine, all below a folder; what is missing there is made."""
    root, sysfs = folder / "driver", folder / "sys"
    if not root.exists():
        _build(folder, machine)
    for name in ("plugins", "registry", "cdi"):
        (folder / name).mkdir(exist_ok=True)
    return Places(
        driver_root=str(root),
        host_driver_root="",
        host_root=folder,
        plugins_dir=folder / "plugins",
        registry_dir=folder / "registry",
        cdi_dir=folder / "cdi",
        imex_socket=folder / "imex.sock",
        mps_dir=folder / "mps",
        sysfs_root=sysfs,
        nvml=machine.flag or "",
    )


def flags_of(places: Places) -> dict[str, str]:
    """The values of the flags, or of the variables, by which a command finds these places."""
    values = {one.name: str(getattr(places, one.name)) for one in fields(places)}
    return {name: value for name, value in values.items() if value}


def subject_of(folder: Path, machine: FakeMachine) -> Subject:
    """The node with this machine, as it is now."""
    places = places_of(folder, machine)
    return Subject(places, look_at_node(places), machine.nvml)


def lay_cuda(root: Path, machine: FakeMachine, compiled: Path) -> CudaDouble:
    """Put a compiled libcuda into the driver root, in place of the compiler of PTX, too."""
    folder = root / LIBRARY_FOLDERS[0]
    for soname in (LIBRARY, COMPILER):
        (folder / soname).resolve().write_bytes(compiled.read_bytes())
    laid = CudaDouble.lay(folder.with_name("cuda"), whole_gpus(machine), compiled)
    laid.files.rename(folder / laid.files.name)
    return CudaDouble(folder / LIBRARY)


def make_real_nodes(root: Path, machine: FakeMachine) -> None:
    """Give the device nodes the numbers that those of the NVIDIA driver have."""
    minors = {f"nvidia{gpu.minor}": gpu.minor for gpu in machine.state.gpus.values()}
    for name, minor in (minors | {"nvidiactl": 255, "nvidia-modeset": 254}).items():
        node = root / "dev" / name
        node.unlink()
        os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(NVIDIA_MAJOR, minor))
