"""Builds what a fake machine's node would have: a driver root whose containers start, and its sysfs."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from fakegpu.driver_files.elf_library import elf_library
from fakegpu.machine.capabilities import null_device
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.smi.listing import SMI, list_lines

LIBRARY_FOLDER = "usr/lib/x86_64-linux-gnu"
CALL_LOG = "var/log/nvidia-calls.log"
"""Below the driver root: one line for each run of a binary of it, its name and its arguments."""

CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
LIBRARIES = {
    "libcuda": "libcuda.so.1",
    "libcudadebugger": "libcudadebugger.so.1",
    "libnvcuvid": "libnvcuvid.so.1",
    "libnvidia-cfg": "libnvidia-cfg.so.1",
    "libnvidia-encode": "libnvidia-encode.so.1",
    "libnvidia-gpucomp": "",
    "libnvidia-ml": "libnvidia-ml.so.1",
    "libnvidia-nvvm": "libnvidia-nvvm.so.4",
    "libnvidia-opencl": "libnvidia-opencl.so.1",
    "libnvidia-opticalflow": "libnvidia-opticalflow.so.1",
    "libnvidia-ptxjitcompiler": "libnvidia-ptxjitcompiler.so.1",
}
"""Library -> its soname link; the file itself is ``<library>.so.<driver version>``."""

STUBS = ("nvidia-debugdump", "nvidia-persistenced")
MPS_CONTROL, MPS_SERVER = "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"
CDI_HOOK = "nvidia-cdi-hook"
HOOK_CALLS = ("update-ldcache", "create-symlinks", "chmod", "enable-cuda-compat")
"""What the stub of the hook says that it knows; those of an older release."""

_REFUSAL = 'echo "$0: the state of this fake machine cannot be reached from here" >&2\nexit 1\n'


@dataclass(frozen=True, slots=True)
class Seen:
    """How containers see a driver root whose programs they run: where it is, the machine, and this package.

    ``machine`` is as ``FakeMachine.open`` takes it, with paths that the containers have; ``python`` is an
    interpreter that finds this package by itself.
    """

    root: Path
    machine: str
    python: Path


def build_driver_root(
    folder: Path, machine: FakeMachine, *, cdi_hook: bool = False, seen: Seen | None = None
) -> Path:
    """Build the driver root of the machine as it is now, below ``folder``; returns ``folder``.

    Device nodes are real character devices (the null device) where this process may make them, else
    links to /dev/null. Libraries are ELF files of the driver's version. nvidia-smi lists the GPUs
    whose nodes it sees: inside a container those of the container. Every binary logs its calls
    in CALL_LOG, where that can be reached. Where the machine's state is in a file, nvidia-smi and
    nvidia-cuda-mps-control also change it (fakegpu.smi.program, fakegpu.mps.program); elsewhere, and
    in containers that cannot reach the file, they refuse that. ``cdi_hook`` adds nvidia-cdi-hook. The
    capability files of MIG follow the machine from then on, whoever changes it
    (fakegpu.machine.capabilities). With ``seen`` the programs are for containers,
    and change the machine there.
    """
    build_device_nodes(folder, machine, seen)
    build_driver_files(folder, machine, cdi_hook=cdi_hook, seen=seen)
    return folder


def build_device_nodes(folder: Path, machine: FakeMachine, seen: Seen | None = None) -> None:
    """Build the part of a driver root that follows the machine: the nodes, and the capabilities of MIG.

    Both follow the machine from then on.
    """
    for name in CONTROL_NODES:
        null_device(folder / "dev" / name)
    (folder / "dev" / "dri" / "by-path").mkdir(parents=True, exist_ok=True)
    machine.attach_driver_root(folder, seen.root if seen else None)


def build_driver_files(
    folder: Path, machine: FakeMachine, *, cdi_hook: bool = False, seen: Seen | None = None
) -> None:
    """Build the part of a driver root that is installed: below ``usr``, ``lib`` and ``var``."""
    _libraries(folder / LIBRARY_FOLDER, machine.state.driver_version)
    (folder / CALL_LOG).parent.mkdir(parents=True, exist_ok=True)
    lists = list_lines(folder, machine.spec, machine.state)
    _script(folder, SMI, _program(folder, machine, "smi.program", seen) + lists + _REFUSAL)
    _script(folder, MPS_CONTROL, _program(folder, machine, "mps.program", seen) + _REFUSAL)
    _script(folder, MPS_SERVER, f"echo {MPS_SERVER} is started by {MPS_CONTROL} >&2\nexit 1\n")
    for name in STUBS:
        _script(folder, name)
    if cdi_hook:
        _script(folder, CDI_HOOK, f"case $1 in --help)\nprintf '   %s\\n' {' '.join(HOOK_CALLS)};; esac\n")
    firmware = folder / "lib" / "firmware" / "nvidia" / machine.state.driver_version
    firmware.mkdir(parents=True, exist_ok=True)
    (firmware / "gsp_ga10x.bin").write_bytes(b"not firmware\n")


def build_sysfs(folder: Path, machine: FakeMachine) -> Path:
    """Build what the machine's kernel shows below ``folder/sys``; returns that, to be given as --sysfs-root.

    It follows the machine from then on, as ``fakegpu.sysfs.kernel.FakeKernel`` changes it.
    """
    root = folder / "sys"
    root.mkdir(parents=True, exist_ok=True)
    machine.attach_sysfs(root)
    return root


def _libraries(folder: Path, version: str) -> None:
    """The libraries of one version; those of another one are removed, as a driver upgrade does."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("lib*.so*"):
        old.unlink()
    for library, soname in LIBRARIES.items():
        file = folder / f"{library}.so.{version}"
        file.write_bytes(elf_library(soname or file.name))
        if soname:
            _link(folder / soname, file.name)
    _link(folder / "libcuda.so", "libcuda.so.1")


def _link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _script(root: Path, name: str, body: str = "") -> None:
    path = root / "usr" / "bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    log = shlex.quote(str((root / CALL_LOG).absolute()))
    # Inside a container the log's folder is not there: then nothing is noted.
    note = f'[ -d {shlex.quote(str((root / CALL_LOG).absolute().parent))} ] && echo "{name} $*" >>{log}'
    path.write_text(f"#!/bin/sh\n{note}\n{body}exit 0\n")
    path.chmod(0o755)


def _program(root: Path, machine: FakeMachine, module: str, seen: Seen | None) -> str:
    """Shell lines that become a program of this package, where the machine's state can be reached."""
    if seen is not None:
        return _become(seen, module, "")
    if machine.flag is None:
        return ""
    packages = f"export PYTHONPATH={shlex.quote(str(Path(__file__).parents[2]))}\n"
    return _become(Seen(root.absolute(), machine.flag, Path(sys.executable)), module, packages)


def _become(seen: Seen, module: str, before: str) -> str:
    state = seen.machine.rpartition("@")[2]
    words = (str(seen.python), "-P", "-m", f"fakegpu.{module}", seen.machine, str(seen.root))
    return (
        f"if [ -x {shlex.quote(str(seen.python))} ] && [ -f {shlex.quote(state)} ]; then\n"
        f'{before}exec {shlex.join(words)} "$0" "$@"\nfi\n'
    )
