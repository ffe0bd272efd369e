"""Builds the files of a fake machine's node: a driver root with which containers start, and sysfs."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from fakegpu.cuda.compiled import with_devices
from fakegpu.driver_files.elf_library import LIBRARY_FOLDER, elf_library
from fakegpu.machine.capabilities import null_device
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.smi.listing import SMI, list_lines

CALL_LOG = "var/log/nvidia-calls.log"
"""Below the driver root: a line for each run of one of its programs, with name and arguments."""

MACHINE_FILE = "libcuda.machine"
"""Beside libcuda: the text with which a program that plays a CUDA process opens the machine."""

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
IMEX_CONTROL = "nvidia-imex-ctl"
IMEX_STATE = "var/lib/fakegpu/imex"
"""What nvidia-imex of the host says of itself: a file with a word, which a test writes.

``READY`` without the file. With ``down`` nothing answers, and with ``slow`` nothing does for a minute.
"""
CDI_HOOK = "nvidia-cdi-hook"
HOOK_CALLS = ("update-ldcache", "create-symlinks", "chmod", "enable-cuda-compat")
"""The commands that the stub of nvidia-cdi-hook lists, as an older release of the real one does."""

_IMEX = """\
state=READY
[ -f {state} ] && state=$(cat {state})
case $state in
down) echo "Failed to connect to the IMEX daemon" >&2; exit 1;;
slow) sleep 60;;
esac
echo "$state"
"""
_REFUSAL = 'echo "$0: the state of this fake machine cannot be reached from here" >&2\nexit 1\n'


@dataclass(frozen=True, slots=True)
class ContainerView:
    """Where containers that run the programs of a driver root find it, the machine and this package.

    ``machine`` is as in ``FakeMachine.open``, with paths inside the containers. ``python`` is an interpreter
    that finds this package without PYTHONPATH.
    """

    root: Path
    machine: str
    python: Path


def build_driver_root(
    folder: Path,
    machine: FakeMachine,
    *,
    cdi_hook: bool = False,
    view: ContainerView | None = None,
    libcuda: bytes | None = None,
) -> Path:
    """Build the driver root of the machine as it is now, below ``folder``; returns ``folder``.

    Libraries are ELF files of the driver's version. nvidia-smi lists the GPUs whose device nodes it sees; in
    a container those are the container's. Every program logs its calls in CALL_LOG if it can reach that file.
    If the machine's state is in a file, nvidia-smi and nvidia-cuda-mps-control also change it
    (fakegpu.smi.program, fakegpu.mps.program); otherwise, and in containers without that file, they refuse.
    With ``view`` the programs are for containers, and change the machine there. ``cdi_hook`` adds
    nvidia-cdi-hook. ``libcuda`` is a compiled library (``fakegpu.cuda.compiled``), with which programs use
    the machine's devices, also in containers; without it libcuda has no code, as the other libraries.
    """
    build_device_nodes(folder, machine, view)
    build_driver_files(folder, machine, cdi_hook=cdi_hook, view=view, libcuda=libcuda)
    return folder


CHANNELS_MAJOR = 511
"""The major of IMEX channels on a fake machine; on a real one it differs from load to load."""


def build_device_nodes(folder: Path, machine: FakeMachine, view: ContainerView | None = None) -> None:
    """Build the device nodes and the capability files of MIG; from then on they follow the machine."""
    for name in CONTROL_NODES:
        null_device(folder / "dev" / name)
    (folder / "dev" / "dri" / "by-path").mkdir(parents=True, exist_ok=True)
    if machine.spec.is_in_rack:
        devices = folder / "proc" / "devices"
        devices.parent.mkdir(exist_ok=True)
        devices.write_text(f"Character devices:\n{CHANNELS_MAJOR} nvidia-caps-imex-channels\n")
    machine.attach_driver_root(folder, view.root if view else None)


def build_driver_files(
    folder: Path,
    machine: FakeMachine,
    *,
    cdi_hook: bool = False,
    view: ContainerView | None = None,
    libcuda: bytes | None = None,
) -> None:
    """Build the part of a driver root that is installed: below ``usr``, ``lib`` and ``var``."""
    _libraries(folder / LIBRARY_FOLDER, machine.state.driver_version)
    if libcuda is not None:
        library = folder / LIBRARY_FOLDER / f"libcuda.so.{machine.state.driver_version}"
        library.write_bytes(with_devices(libcuda, folder, machine.spec, machine.state))
    flag = view.machine if view else machine.flag
    if flag is not None:
        (folder / LIBRARY_FOLDER / MACHINE_FILE).write_text(f"{flag}\n")
    (folder / CALL_LOG).parent.mkdir(parents=True, exist_ok=True)
    lists = list_lines(folder, machine.spec, machine.state)
    # The program of this package runs if it can be reached; otherwise the shell lines below it answer.
    _script(folder, SMI, _program(folder, machine, "smi.program", view) + lists + _REFUSAL)
    _script(folder, MPS_CONTROL, _program(folder, machine, "mps.program", view) + _REFUSAL)
    _script(folder, MPS_SERVER, f"echo {MPS_SERVER} is started by {MPS_CONTROL} >&2\nexit 1\n")
    for name in STUBS:
        _script(folder, name)
    (folder / IMEX_STATE).parent.mkdir(parents=True, exist_ok=True)
    _script(folder, IMEX_CONTROL, _IMEX.format(state=shlex.quote(str((folder / IMEX_STATE).absolute()))))
    if cdi_hook:
        _script(folder, CDI_HOOK, f"case $1 in --help)\nprintf '   %s\\n' {' '.join(HOOK_CALLS)};; esac\n")
    firmware = folder / "lib" / "firmware" / "nvidia" / machine.state.driver_version
    firmware.mkdir(parents=True, exist_ok=True)
    (firmware / "gsp_ga10x.bin").write_bytes(b"not firmware\n")


def build_sysfs(folder: Path, machine: FakeMachine) -> Path:
    """Build the sysfs of the machine's kernel below ``folder/sys``; returns that folder, for --sysfs-root.

    From then on it follows the machine, also when ``fakegpu.sysfs.kernel.FakeKernel`` changes it.
    """
    root = folder / "sys"
    root.mkdir(parents=True, exist_ok=True)
    machine.attach_sysfs(root)
    return root


def _libraries(folder: Path, version: str) -> None:
    """Install the libraries of one version and remove those of another, as an upgrade of the driver does."""
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
    # In a container the log's folder does not exist, and nothing is logged.
    note = f'[ -d {shlex.quote(str((root / CALL_LOG).absolute().parent))} ] && echo "{name} $*" >>{log}'
    path.write_text(f"#!/bin/sh\n{note}\n{body}exit 0\n")
    path.chmod(0o755)


def _program(root: Path, machine: FakeMachine, module: str, view: ContainerView | None) -> str:
    """Shell lines that run a module of this package if it and the machine's state file can be reached."""
    packages = ""
    if view is None:
        # A machine that lives in this process alone cannot be changed by a program.
        if machine.flag is None:
            return ""
        packages = f"export PYTHONPATH={shlex.quote(str(Path(__file__).parents[2]))}\n"
        view = ContainerView(root.absolute(), machine.flag, Path(sys.executable))
    state = view.machine.rpartition("@")[2]
    words = (str(view.python), "-P", "-m", f"fakegpu.{module}", view.machine, str(view.root))
    return (
        f"if [ -x {shlex.quote(str(view.python))} ] && [ -f {shlex.quote(state)} ]; then\n"
        f'{packages}exec {shlex.join(words)} "$0" "$@"\nfi\n'
    )
