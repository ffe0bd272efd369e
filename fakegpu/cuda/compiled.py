"""libcuda of a fake machine as a real library, which programs in real containers load.

It is compiled from ``libcuda.c``, which says what its file has behind the library: the devices, by their
device nodes, so that a process sees those of its container.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fakegpu.cuda.visible_devices import machine_devices
from fakegpu.driver_files.elf_library import LIBRARY_FOLDER
from fakegpu.machine.spec import MachineSpec
from fakegpu.machine.state import MachineState
from fakegpu.memory.cuda import device_bytes

SONAME = "libcuda.so.1"
_SOURCE = Path(__file__).with_name("libcuda.c")
_C = ("-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{SONAME}")
_END_MARK = b"DEVICES\n"
_LENGTH_DIGITS = 8


@dataclass(frozen=True, slots=True)
class Described:
    """A device as the library reads it; a MIG device has another ``uuid`` than its GPU.

    ``uuid`` is None for a GPU in MIG mode. A process sees the device if all ``nodes`` are there.
    """

    gpu_uuid: str
    uuid: str | None
    capability: tuple[int, int]
    total_bytes: int
    name: str
    nodes: tuple[str, ...] = ()

    def line(self) -> str:
        """The line that the library reads."""
        major, minor = self.capability
        uuids = f"{self.gpu_uuid} {self.uuid or '-'}"
        return f"{uuids} {major}.{minor} {self.total_bytes} {','.join(self.nodes) or '-'} {self.name}\n"


def compile_libcuda(target: Path, *options: str) -> Path:
    """Compile the library with gcc, which has to be there; raises CalledProcessError."""
    words = ["gcc", *_C, *options, "-o", str(target), str(_SOURCE)]
    subprocess.run(words, check=True, capture_output=True, text=True)
    return target


@cache
def compiled_libcuda() -> bytes | None:
    """The library without devices; None if there is no gcc, or none that works."""
    if shutil.which("gcc") is None:
        return None
    with tempfile.TemporaryDirectory(prefix="libcuda-") as folder:
        try:
            return compile_libcuda(Path(folder, SONAME)).read_bytes()
        except subprocess.CalledProcessError:
            # gcc without the headers of libc.
            return None


def text_of(version: str, devices: Iterable[Described], root: str = "-") -> str:
    """The text that the library reads; ``root`` is a folder that may have the device nodes, too."""
    major, _, minor = version.partition(".")
    return f"{int(major) * 1000 + int(minor) * 10} {root}\n{''.join(one.line() for one in devices)}"


def with_devices(library: bytes, root: Path, spec: MachineSpec, state: MachineState) -> bytes:
    """The library with the devices of a machine, in place of others; ``root`` is the driver root."""
    found = machine_devices(spec, state)
    described = (
        Described(
            spec.board_uuid(one.place.pci, state.gpus[one.place.pci].board),
            one.uuid,
            spec.product.compute_capability,
            device_bytes(spec, state, one.place),
            one.name,
            one.nodes,
        )
        for one in found
    )
    text = text_of(state.cuda_driver_version, described, str(root.absolute())).encode()
    return _without_devices(library) + text + f"{len(text):0{_LENGTH_DIGITS}x}".encode() + _END_MARK


def rewrite_devices(root: Path, spec: MachineSpec, state: MachineState) -> None:
    """Make the libcuda of a driver root show the devices as they are now, if it is a compiled one.

    Containers that already run keep the library that was mounted for them. A library that is a link out of
    the root is shared with other machines, and stays as it is.
    """
    library = root / LIBRARY_FOLDER / f"libcuda.so.{state.driver_version}"
    if not library.resolve().is_relative_to(root.resolve()) or not _has_devices(library):
        return
    # By rename: processes map the file.
    made = library.with_name(f".libcuda-{os.getpid()}")
    made.write_bytes(with_devices(library.read_bytes(), root, spec, state))
    made.rename(library)


def _has_devices(library: Path) -> bool:
    try:
        with library.open("rb") as file:
            file.seek(-len(_END_MARK), os.SEEK_END)
            return file.read() == _END_MARK
    except OSError:
        return False


def _without_devices(library: bytes) -> bytes:
    if not library.endswith(_END_MARK):
        return library
    end = len(library) - len(_END_MARK) - _LENGTH_DIGITS
    return library[: end - int(library[end : end + _LENGTH_DIGITS], 16)]
