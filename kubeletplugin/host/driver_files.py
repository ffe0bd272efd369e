"""Finds what a container needs of the NVIDIA driver's user space below a driver root.

Libraries carry the driver's version in their file name (``libcuda.so.580.65.06``); a few carry their
own. The list is remembered until one of the folders looked into changes.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from driver.errors import NodeIncomplete
from driver.nvml.library import LIBRARY_FOLDERS

BINARY_FOLDERS = ("usr/bin", "usr/sbin", "usr/local/bin", "usr/local/nvidia/bin", "bin", "opt/bin")
MPS_PROGRAMS = ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server")
BINARIES = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    *MPS_PROGRAMS,
    "nvidia-imex",
    "nvidia-imex-ctl",
)
SOCKETS = ("run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket")
HOOK = "nvidia-cdi-hook"

_VERSIONED = re.compile(r"^(?P<stem>lib[\w.+-]+?\.so)\.(?P<version>\d+\.\d+(?:\.\d+)?)$")
_OWN_VERSION = re.compile(
    r"^lib(?:nvidia-egl-(?:gbm|wayland2?|xcb|xlib)\.so\.\d+\.\d+\.\d+|nvidia-nvvm70\.so\.[\d.]+)$"
)


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link of the driver beside its library: ``path`` in the container points to ``target``."""

    path: str
    target: str


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """The driver's files by their absolute path in the container, which is that below the driver root.

    ``hook`` is the path of nvidia-cdi-hook below the driver root, or None where there is none.
    """

    version: str
    libraries: tuple[str, ...]
    links: tuple[Link, ...]
    binaries: tuple[str, ...]
    firmware: tuple[str, ...]
    sockets: tuple[str, ...]
    hook: str | None

    @property
    def library_folders(self) -> tuple[str, ...]:
        """The folders that the libraries lie in, for the container's linker cache."""
        return tuple(sorted({str(PurePosixPath(path).parent) for path in self.libraries}))


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
        if files is None or tuple(map(_stamp, self._watched)) != self._stamp:
            # The stamps come first: what changes while the files are looked for is looked for again.
            watched = _watched(self.path)
            stamp = tuple(map(_stamp, watched))
            files = self._find()
            self._files, self._watched, self._stamp = files, watched, stamp
        return files

    def _find(self) -> DriverFiles:
        folders = _distinct(self.path, LIBRARY_FOLDERS)
        version = self._version(folders)
        libraries, links = [], []
        for folder in (*folders, *_distinct(self.path, tuple(f"{folder}/vdpau" for folder in folders))):
            found, aliases = self._libraries(folder, version)
            libraries += found
            links += aliases
        binaries = self._binaries()
        firmware = sorted((self.path / "lib/firmware/nvidia" / version).glob("gsp*.bin"))
        return DriverFiles(
            version,
            tuple(libraries),
            tuple(links),
            tuple(path for name in BINARIES if (path := binaries.get(name))),
            tuple(f"/{file.relative_to(self.path)}" for file in firmware),
            tuple(f"/{socket}" for socket in SOCKETS if (self.path / socket).is_socket()),
            binaries.get(HOOK),
        )

    def _version(self, folders: tuple[str, ...]) -> str:
        """The version of the driver in use: what libnvidia-ml.so.1 or libcuda.so.1 points to."""
        for folder in folders:
            for name in ("libnvidia-ml.so.1", "libcuda.so.1"):
                link = self.path / folder / name
                match = _VERSIONED.match(link.readlink().name) if link.is_symlink() else None
                if match is not None and link.with_name(match[0]).exists():
                    return match["version"]
        raise NodeIncomplete(
            f"no NVIDIA driver library (libnvidia-ml.so.1, libcuda.so.1) was found below {self.path}",
            "install the driver, or set --driver-root to the folder that it is installed in",
        )

    def _libraries(self, folder: str, version: str) -> tuple[list[str], list[Link]]:
        entries = sorted((self.path / folder).iterdir())
        wanted = {
            entry.name
            for entry in entries
            if not entry.is_symlink()
            and (
                ((match := _VERSIONED.match(entry.name)) and match["version"] == version)
                or _OWN_VERSION.match(entry.name)
            )
        }
        links = [
            Link(f"/{folder}/{entry.name}", entry.readlink().name)
            for entry in entries
            if entry.is_symlink() and entry.readlink().name in wanted
        ]
        # libcuda.so points to libcuda.so.1, a link of a link: it is what programs are linked against.
        names = {PurePosixPath(link.path).name for link in links}
        links += [
            Link(f"/{folder}/{entry.name}", entry.readlink().name)
            for entry in entries
            if entry.is_symlink() and entry.readlink().name in names
        ]
        return [f"/{folder}/{name}" for name in sorted(wanted)], links

    def _binaries(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for folder in _distinct(self.path, BINARY_FOLDERS):
            for name in (*BINARIES, HOOK):
                if name not in found and (self.path / folder / name).is_file():
                    found[name] = f"/{folder}/{name}"
        return found


def _watched(root: Path) -> tuple[str, ...]:
    """The folders whose change means that the driver's files may have changed.

    Those that are there, and of those that are not the nearest one above them: it changes when they come.
    """
    wanted = [root / folder for folder in LIBRARY_FOLDERS]
    wanted += [folder / "vdpau" for folder in wanted]
    wanted += [root / folder for folder in (*BINARY_FOLDERS, "lib/firmware/nvidia")]
    wanted += [(root / socket).parent for socket in SOCKETS]
    nearest = (next(f for f in (folder, *folder.parents) if f.is_dir() or f == root) for folder in wanted)
    return tuple(dict.fromkeys(map(str, nearest)))


def _stamp(path: str) -> tuple[int, int] | None:
    """Inode and time of a folder; os.stat on text, since every prepare asks for some ten of them."""
    try:
        status = os.stat(path)  # noqa: PTH116 - see above
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _distinct(root: Path, folders: tuple[str, ...]) -> tuple[str, ...]:
    """The folders that exist, each once: /lib is often the same folder as /usr/lib."""
    found: dict[tuple[int, int], str] = {}
    for folder in folders:
        path = root / folder
        if path.is_dir():
            status = path.stat()
            found.setdefault((status.st_dev, status.st_ino), folder)
    return tuple(found.values())
