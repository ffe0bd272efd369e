"""Finds what a container needs of the NVIDIA driver's user space below a driver root.

The list is remembered until one of the folders looked into changes.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from driver.errors import NodeIncomplete
from driver.roots.driver_roots import DriverRoots
from driver.roots.places import LIBRARY_FOLDERS, PROGRAM_FOLDERS
from driver.roots.root import Root
from kubeletplugin.devices.host.library_files import (
    Link,
    distinct,
    driver_version,
    files_in,
    find_libraries,
    is_file,
    links_to,
    nearest,
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

_SETTINGS_FOLDERS = ("etc", "usr/local/share", "usr/share")

_IN_SHARE = (
    "glvnd/egl_vendor.d/10_nvidia.json",
    "egl/egl_external_platform.d/15_nvidia_gbm.json",
    "egl/egl_external_platform.d/10_nvidia_wayland.json",
    "egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "egl/egl_external_platform.d/20_nvidia_xcb.json",
    "egl/egl_external_platform.d/20_nvidia_xlib.json",
    "nvidia/nvoptix.bin",
    "X11/xorg.conf.d/10-nvidia.conf",
    "X11/xorg.conf.d/nvidia-drm-outputclass.conf",
)
_IN_ETC = ("OpenCL/vendors/nvidia.icd",)
_VULKAN = (
    "vulkan/icd.d/nvidia_icd.json",
    "vulkan/icd.d/nvidia_layers.json",
    "vulkan/implicit_layer.d/nvidia_layers.json",
    f"vulkan/icd.d/nvidia_icd.{platform.machine()}.json",  # RPM packages name it so
)

_XORG_FOLDERS = (
    "xorg/modules/drivers",
    "xorg/modules/extensions",
    "xorg/modules/updates/drivers",
    "xorg/modules/updates/extensions",
)
_X11_FOLDERS = (
    "modules/drivers",
    "modules/extensions",
    "modules/updates/drivers",
    "modules/updates/extensions",
)
_XORG_DRIVER, _GLX_MODULE = "nvidia_drv.so", "libglxserver_nvidia.so"


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """The driver's files by their absolute path in the container.

    That is their path below the driver root but for those in ``elsewhere``, which says where these are.
    ``settings`` have a place of their own there. ``modules`` are those of X.Org. ``hook`` is the path of
    nvidia-cdi-hook below the driver root, or None where there is none.
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
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def below_root(self, path: str) -> str:
        """Where the file that has this path in containers lies below the driver root."""
        return self.elsewhere.get(path, path)

    @property
    def library_folders(self) -> tuple[str, ...]:
        """The folders that the libraries lie in, for the container's linker cache."""
        return tuple(dict.fromkeys(str(PurePosixPath(path).parent) for path in self.libraries))

    @property
    def main_folders(self) -> tuple[str, ...]:
        """Those of libcuda and its like: the others are subfolders of one use."""
        return tuple(folder for folder in self.library_folders if not folder.endswith("/vdpau"))


def _stamp(path: str) -> tuple[int, int, int] | None:
    """Device, inode and time of a folder; os.stat on text, since every prepare asks for twenty of them."""
    try:
        status = os.stat(path)  # noqa: PTH116 - see above
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


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
        try:
            return self._current()
        except OSError as error:  # a root that is taken away while it is looked into
            raise NodeIncomplete(
                f"the NVIDIA driver below {self.path} cannot be read: {error}",
                "it is tried again; see whether the driver is being replaced",
            ) from error

    def _current(self) -> DriverFiles:
        files = self._files
        if files is None or tuple(map(_stamp, self._watched)) != self._stamp:
            # The stamps come first: what changes while the files are looked for is looked for again.
            watched = nearest(self.root, _folders(driver_version(self.root)))
            stamps = tuple(map(_stamp, watched))
            found = self._find()
            files = files if found == files else found  # whoever made something of them keeps it
            self._files, self._watched, self._stamp = files, watched, stamps
        return files

    def _find(self) -> DriverFiles:
        version = driver_version(self.root)
        found = find_libraries(self.root, version)
        graphics = _find_graphics(self.root, version, distinct(self.root, LIBRARY_FOLDERS))
        binaries = self._binaries()
        files = DriverFiles(
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
        return _as_in_containers(files, self.root)

    def _binaries(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for folder in distinct(self.root, PROGRAM_FOLDERS):
            for name in (*BINARIES, HOOK):
                if name not in found and is_file(self.root, f"{folder}/{name}"):
                    found[name] = f"/{folder}/{name}"
        return found

    def _firmware(self, version: str) -> tuple[str, ...]:
        folders = distinct(self.root, _firmware_folders(version))
        return tuple(path for folder in folders for path in files_in(self.root, folder, *_FIRMWARE))

    def _sockets(self) -> tuple[str, ...]:
        """The first place of each that has it."""
        places = (
            [f"{folder}/{name}" for folder in SOCKET_FOLDERS if self._is_socket(f"{folder}/{name}")]
            for name in SOCKETS
        )
        return tuple(f"/{found[0]}" for found in places if found)

    def _is_socket(self, path: str) -> bool:
        real = self.root.at(path)
        return real is not None and real.is_socket()


def _as_in_containers(found: DriverFiles, root: Root) -> DriverFiles:
    """The files with the paths that they have in containers; as found, they have those below the root."""
    elsewhere: dict[str, str] = {}

    def moved(path: str) -> str:
        there, source = root.in_container(path), root.for_host(path)
        if path and there != source:
            elsewhere[there] = source
        return there

    links = tuple(Link(root.in_container(one.path), one.target, moved(one.file)) for one in found.links)
    return replace(
        found,
        libraries=tuple(map(moved, found.libraries)),
        links=links,
        binaries=tuple(map(moved, found.binaries)),
        firmware=tuple(map(moved, found.firmware)),
        settings=tuple(Placed(root.for_host(one.path), one.in_container) for one in found.settings),
        modules=tuple(map(moved, found.modules)),
        elsewhere=elsewhere,
    )


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
        *PROGRAM_FOLDERS,
        *_firmware_folders(version),
        *(f"{folder}/{PurePosixPath(name).parent}" for folder in SOCKET_FOLDERS for name in SOCKETS),
        *_graphics_folders(LIBRARY_FOLDERS),
    )


@dataclass(frozen=True, slots=True)
class Placed:
    """A file by its absolute path below the driver root, and where the container has it."""

    path: str
    in_container: str


@dataclass(frozen=True, slots=True)
class _GraphicsFiles:
    """The settings with their places, and X.Org's modules, which lie in the container where they lie here."""

    settings: tuple[Placed, ...]
    modules: tuple[str, ...]
    links: tuple[Link, ...]


def _graphics_folders(library_folders: Iterable[str]) -> tuple[str, ...]:
    """The folders, below the root, whose change means that these files may have changed."""
    settings = dict.fromkeys(str(PurePosixPath(name).parent) for name in (*_IN_SHARE, *_IN_ETC, *_VULKAN))
    places = (*_SETTINGS_FOLDERS, "")
    return (
        *(
            f"{place}/{folder}".lstrip("/")
            for folder in settings
            for place in places
            if place or "vulkan" in folder
        ),
        *_xorg_folders(library_folders),
    )


def _find_graphics(root: Root, version: str, library_folders: Iterable[str]) -> _GraphicsFiles:
    """What is there of them; the first of several places counts."""
    settings = [
        *_settings(root, _IN_SHARE, "/usr/share", _SETTINGS_FOLDERS),
        *_settings(root, _IN_ETC, "/etc", _SETTINGS_FOLDERS),
        # Google's installer has Vulkan's files at the root itself.
        *_settings(root, _VULKAN, "/etc", (*_SETTINGS_FOLDERS, "")),
    ]
    modules: list[str] = []
    links: list[Link] = []
    for name in (_XORG_DRIVER, f"{_GLX_MODULE}.{version}"):
        folder = next((f for f in _xorg_folders(library_folders) if is_file(root, f"{f}/{name}")), None)
        real = None if folder is None else root.at(folder)
        if real is None:
            continue
        modules.append(f"/{folder}/{name}")
        if name != _XORG_DRIVER:
            links += links_to(real, f"/{folder}", {name}) or [
                Link(f"/{folder}/{_GLX_MODULE}", name, f"/{folder}/{name}")
            ]
    return _GraphicsFiles(tuple(settings), tuple(modules), tuple(links))


def _settings(root: Root, names: Iterable[str], placed: str, folders: tuple[str, ...]) -> list[Placed]:
    found: dict[str, Placed] = {}
    for name in names:
        path = next((f"{f}/{name}".lstrip("/") for f in folders if is_file(root, f"{f}/{name}")), None)
        if path is not None:
            found.setdefault(path, Placed(f"/{path}", f"{placed}/{name}"))
    return list(found.values())


def _xorg_folders(library_folders: Iterable[str]) -> tuple[str, ...]:
    """Where X.Org's modules may lie, the likeliest first."""
    beside = (
        f"{folder.lstrip('/')}/{below}"
        for folder in library_folders
        for below in ("nvidia/xorg", *_XORG_FOLDERS)
    )
    fixed = (f"{folder}/{below}" for folder in ("usr/lib", "usr/lib64") for below in _XORG_FOLDERS)
    old = (f"usr/X11R6/{folder}/{below}" for folder in ("lib", "lib64") for below in _X11_FOLDERS)
    return tuple(dict.fromkeys((*beside, *fixed, *old)))


class InstalledDriver:
    """Gives the root that counts, with its files. Safe to use from several threads.

    ``host_root`` is where this process sees the root of the host, None where it was not given.
    """

    def __init__(self, roots: DriverRoots) -> None:
        self.host_root = roots.host_root
        self._roots = roots
        self._last: tuple[Root, DriverRoot] | None = None

    @classmethod
    def below(cls, seen: Path, on_host: Path | None = None) -> InstalledDriver:
        """The driver below one root and no other."""
        return cls(DriverRoots.fixed(seen, on_host))

    def now(self) -> DriverRoot:
        """The root that counts now; the same object as before unless it is another root.

        Raises NodeIncomplete while no place has a driver.
        """
        root, last = self._roots.current(), self._last
        if last is not None and last[0] == root:
            return last[1]
        found = DriverRoot(root)
        self._last = root, found
        return found
