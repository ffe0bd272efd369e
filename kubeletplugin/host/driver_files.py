"""Finds what a container needs of the NVIDIA driver's user space below a driver root.

Libraries carry the driver's version in their file name (``libcuda.so.580.65.06``); a few carry their
own. The list is remembered until one of the folders looked into changes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from driver.errors import NodeIncomplete
from driver.roots.places import LIBRARY_FOLDERS, PROGRAM_FOLDERS
from driver.roots.probe import LIBRARIES, prove
from driver.roots.root import Root

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
    """The driver's files by their absolute path in the container.

    That is their path below the driver root but for those in ``elsewhere``, which says where these are.
    ``hook`` is the path of nvidia-cdi-hook below the driver root, or None where there is none.
    """

    version: str
    libraries: tuple[str, ...]
    links: tuple[Link, ...]
    binaries: tuple[str, ...]
    firmware: tuple[str, ...]
    sockets: tuple[str, ...]
    hook: str | None
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def below_root(self, path: str) -> str:
        """Where the file that has this path in containers lies below the driver root."""
        return self.elsewhere.get(path, path)

    @property
    def library_folders(self) -> tuple[str, ...]:
        """The folders that the libraries lie in, for the container's linker cache."""
        return tuple(sorted({str(PurePosixPath(path).parent) for path in self.libraries}))


class DriverRoot:
    """The folder below which the driver's files lie, ``/`` or that of a driver container."""

    def __init__(self, root: Path | Root) -> None:
        self.root = root if isinstance(root, Root) else Root.given(root)
        self.path = self.root.seen
        self._watched: tuple[str, ...] = ()
        self._stamp: tuple[tuple[int, int, int] | None, ...] = ()
        self._files: DriverFiles | None = None

    def files(self) -> DriverFiles:
        """The driver's files as they are now.

        Raises NodeIncomplete when no driver library is there: the driver is not installed, or not yet.
        """
        files = self._files
        if files is None or tuple(map(_stamp, self._watched)) != self._stamp:
            # The stamps come first: what changes while the files are looked for is looked for again.
            watched = _watched(self.root)
            stamp = tuple(map(_stamp, watched))
            files = self._find()
            self._files, self._watched, self._stamp = files, watched, stamp
        return files

    def _find(self) -> DriverFiles:
        version = self._version()
        folders = _distinct(self.root, LIBRARY_FOLDERS)
        libraries, links = [], []
        for folder in (*folders, *_distinct(self.root, tuple(f"{folder}/vdpau" for folder in folders))):
            found, aliases = self._libraries(folder, version)
            libraries += found
            links += aliases
        binaries = self._binaries()
        return _as_in_containers(
            DriverFiles(
                version,
                tuple(libraries),
                tuple(links),
                tuple(path for name in BINARIES if (path := binaries.get(name))),
                self._firmware(f"/lib/firmware/nvidia/{version}"),
                tuple(f"/{socket}" for socket in SOCKETS if _is_socket(self.root.at(socket))),
                binaries.get(HOOK),
            ),
            self.root,
        )

    def _version(self) -> str:
        """The version of the driver in use: what libnvidia-ml.so.1 or libcuda.so.1 points to."""
        looked, _ = prove(self.root)
        if looked.version is None:
            raise NodeIncomplete(
                f"no NVIDIA driver library ({', '.join(LIBRARIES)}) was found below {self.path}: "
                f"{looked.reason}",
                "install the driver, or set --driver-root to the folder that it is installed in",
            )
        return looked.version

    def _libraries(self, folder: str, version: str) -> tuple[list[str], list[Link]]:
        real = self.root.at(folder)
        entries = [] if real is None else sorted(real.iterdir())
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
        for folder in _distinct(self.root, PROGRAM_FOLDERS):
            for name in (*BINARIES, HOOK):
                real = None if name in found else self.root.at(f"{folder}/{name}")
                if real is not None and real.is_file():
                    found[name] = f"/{folder}/{name}"
        return found

    def _firmware(self, folder: str) -> tuple[str, ...]:
        real = self.root.at(folder)
        names = [] if real is None else sorted(file.name for file in real.glob("gsp*.bin"))
        return tuple(f"{folder}/{name}" for name in names)


def _as_in_containers(found: DriverFiles, root: Root) -> DriverFiles:
    """The files with the paths that they have in containers; as found, they have those below the root."""
    elsewhere: dict[str, str] = {}

    def moved(path: str) -> str:
        there, source = root.in_container(path), root.for_host(path)
        if there != source:
            elsewhere[there] = source
        return there

    return replace(
        found,
        libraries=tuple(map(moved, found.libraries)),
        links=tuple(Link(moved(link.path), link.target) for link in found.links),
        binaries=tuple(map(moved, found.binaries)),
        firmware=tuple(map(moved, found.firmware)),
        elsewhere=elsewhere,
    )


def _watched(root: Root) -> tuple[str, ...]:
    """The folders whose change means that the driver's files may have changed.

    Those that are there, and of those that are not the nearest one above them: it changes when they come.
    """
    wanted = [PurePosixPath(folder) for folder in LIBRARY_FOLDERS]
    wanted += [folder / "vdpau" for folder in wanted]
    wanted += [PurePosixPath(folder) for folder in (*PROGRAM_FOLDERS, "lib/firmware/nvidia")]
    wanted += [PurePosixPath(socket).parent for socket in SOCKETS]
    return tuple(dict.fromkeys(str(_nearest(root, folder)) for folder in wanted))


def _nearest(root: Root, folder: PurePosixPath) -> Path:
    """The folder itself, or the first one above it that is there."""
    for one in (folder, *folder.parents):
        real = root.at(str(one))
        if real is not None and real.is_dir():
            return real
    return root.seen


def _stamp(path: str) -> tuple[int, int, int] | None:
    """Device, inode and time of a folder; os.stat on text, since every prepare asks for some ten of them."""
    try:
        status = os.stat(path)  # noqa: PTH116 - see above
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _is_socket(path: Path | None) -> bool:
    return path is not None and path.is_socket()


def _distinct(root: Root, folders: tuple[str, ...]) -> tuple[str, ...]:
    """The folders that exist, each once: /lib is often the same folder as /usr/lib."""
    found: dict[Path, str] = {}
    for folder in folders:
        real = root.at(folder)
        if real is not None and real.is_dir():
            found.setdefault(real, folder)
    return tuple(found.values())
