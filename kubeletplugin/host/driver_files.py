"""Finds what a container needs of the NVIDIA driver's user space below a driver root.

The list is remembered until one of the folders looked into changes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from driver.nvml.library import LIBRARY_FOLDERS
from kubeletplugin.host.folders import distinct, nearest, stamp
from kubeletplugin.host.graphics_files import Placed, find_graphics, graphics_folders
from kubeletplugin.host.library_files import Link, driver_version, find_libraries

BINARY_FOLDERS = (
    "usr/bin",
    "usr/sbin",
    "usr/local/bin",
    "usr/local/sbin",
    "usr/local/nvidia/bin",
    "bin",
    "sbin",
    "opt/bin",
)
MPS_PROGRAMS = ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server")
BINARIES = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    *MPS_PROGRAMS,
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nvidia-xconfig",
)
SOCKETS = ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")
SOCKET_FOLDERS = ("run", "var/run")
HOOK = "nvidia-cdi-hook"

_FIRMWARE = ("gsp*.bin", "ucodes*.bin")
_FIRMWARE_PATH = Path("/sys/module/firmware_class/parameters/path")


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """The driver's files by their absolute path in the container, which is that below the driver root.

    ``settings`` alone have a place of their own there. ``modules`` are those of X.Org. ``hook`` is the path
    of nvidia-cdi-hook below the driver root, or None where there is none.
    """

    version: str
    libraries: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    binaries: tuple[str, ...] = ()
    firmware: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    hook: str | None = None
    settings: tuple[Placed, ...] = ()
    modules: tuple[str, ...] = ()

    @property
    def library_folders(self) -> tuple[str, ...]:
        """The folders that the libraries lie in, for the container's linker cache."""
        return tuple(dict.fromkeys(str(PurePosixPath(path).parent) for path in self.libraries))

    @property
    def main_folders(self) -> tuple[str, ...]:
        """Those of libcuda and its like: the others are subfolders of one use."""
        return tuple(folder for folder in self.library_folders if not folder.endswith("/vdpau"))


class DriverRoot:
    """The folder below which the driver's files lie, ``/`` or that of a driver container."""

    def __init__(self, root: Path) -> None:
        self.path = root
        self._watched: tuple[str, ...] = ()
        self._stamp: tuple[tuple[int, int] | None, ...] = ()
        self._files: DriverFiles | None = None

    def files(self) -> DriverFiles:
        """The driver's files as they are now.

        Raises NodeIncomplete when no driver library is there: the driver is not installed, or not yet.
        """
        files = self._files
        if files is None or tuple(map(stamp, self._watched)) != self._stamp:
            # The stamps come first: what changes while the files are looked for is looked for again.
            watched = nearest(self.path, _folders(driver_version(self.path)))
            stamps = tuple(map(stamp, watched))
            found = self._find()
            files = files if found == files else found  # whoever made something of them keeps it
            self._files, self._watched, self._stamp = files, watched, stamps
        return files

    def _find(self) -> DriverFiles:
        version = driver_version(self.path)
        found = find_libraries(self.path, version)
        graphics = find_graphics(self.path, version, distinct(self.path, LIBRARY_FOLDERS))
        binaries = self._binaries()
        return DriverFiles(
            version,
            found.libraries,
            (*found.links, *graphics.links),
            tuple(path for name in BINARIES if (path := binaries.get(name))),
            self._firmware(version),
            self._sockets(),
            binaries.get(HOOK),
            graphics.settings,
            graphics.modules,
        )

    def _binaries(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for folder in distinct(self.path, BINARY_FOLDERS):
            for name in (*BINARIES, HOOK):
                if name not in found and (self.path / folder / name).is_file():
                    found[name] = f"/{folder}/{name}"
        return found

    def _firmware(self, version: str) -> tuple[str, ...]:
        folders = distinct(self.path, _firmware_folders(version))
        files = (sorted((self.path / f).glob(pattern)) for f in folders for pattern in _FIRMWARE)
        return tuple(f"/{file.relative_to(self.path)}" for found in files for file in found)

    def _sockets(self) -> tuple[str, ...]:
        """The first place of each that has it."""
        places = (
            [f"{folder}/{name}" for folder in SOCKET_FOLDERS if (self.path / folder / name).is_socket()]
            for name in SOCKETS
        )
        return tuple(f"/{found[0]}" for found in places if found)


def _firmware_folders(version: str) -> tuple[str, ...]:
    """Where the kernel looks for firmware, in its order (Documentation/driver-api/firmware)."""
    release = os.uname().release
    try:
        custom = _FIRMWARE_PATH.read_text().strip().strip("/")
    except OSError:
        custom = ""
    usual = (
        f"lib/firmware/updates/{release}",
        "lib/firmware/updates",
        f"lib/firmware/{release}",
        "lib/firmware",
    )
    return tuple(f"{folder}/nvidia/{version}" for folder in (custom, *usual) if folder)


def _folders(version: str) -> tuple[str, ...]:
    """All folders that are looked into."""
    return (
        *LIBRARY_FOLDERS,
        *(f"{folder}/vdpau" for folder in LIBRARY_FOLDERS),
        *BINARY_FOLDERS,
        *_firmware_folders(version),
        *(f"{folder}/{PurePosixPath(name).parent}" for folder in SOCKET_FOLDERS for name in SOCKETS),
        *graphics_folders(LIBRARY_FOLDERS),
    )
