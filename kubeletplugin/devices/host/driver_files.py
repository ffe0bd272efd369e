"""Finds the files of the NVIDIA driver that a container needs, below a driver root.

The list is remembered until one of the searched folders changes.
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
from kubeletplugin.devices.host import library_files

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
# On most systems /var/run is a link to /run.
SOCKET_FOLDERS = ("run", "var/run")
HOOK = "nvidia-cdi-hook"

# NVIDIA's own CDI generator mounts the same files.
_FIRMWARE = ("gsp*.bin", "ucodes*.bin")
# The kernel's module parameter with one more folder for firmware.
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

    That is also their path below the driver root, except for those in ``settings`` and ``elsewhere``.
    """

    version: str
    libraries: tuple[str, ...] = ()
    links: tuple[library_files.Link, ...] = ()
    binaries: tuple[str, ...] = ()
    firmware: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    # The path of nvidia-cdi-hook below the driver root.
    hook: str | None = None
    # Files of EGL, Vulkan, OpenCL and X.Org, with both paths.
    settings: tuple[Placed, ...] = ()
    # Modules of the X.Org server.
    modules: tuple[str, ...] = ()
    # For files with another path below the driver root: the path in the container -> that path.
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    # For programs that are scripts on the host: the path in the container -> the program that it gets there,
    # by its path below the driver root.
    behind_scripts: Mapping[str, str] = field(default_factory=dict)

    def below_root(self, path: str) -> str:
        """The path below the driver root of the file with this path in the container."""
        return self.elsewhere.get(path, path)

    def mounted(self, path: str) -> str:
        """The path below the driver root of what a container gets at this path."""
        return self.behind_scripts.get(path) or self.below_root(path)

    @property
    def library_folders(self) -> tuple[str, ...]:
        """The folders of the libraries, for the container's linker cache."""
        return tuple(dict.fromkeys(str(PurePosixPath(path).parent) for path in self.libraries))

    @property
    def main_folders(self) -> tuple[str, ...]:
        """The folders of libcuda and most libraries, without the one for VDPAU."""
        return tuple(folder for folder in self.library_folders if not folder.endswith("/vdpau"))


def _stamp(path: str) -> tuple[int, int, int] | None:
    """Device, inode and time of a folder; os.stat on text, since every prepare asks for twenty of them."""
    try:
        status = os.stat(path)  # noqa: PTH116 - see above
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


class DriverRoot:
    """A folder that a driver is installed in: ``/``, or the root of a driver container."""

    def __init__(self, root: Path | Root) -> None:
        self.root = root if isinstance(root, Root) else Root.given(root)
        self.path = self.root.seen
        # The folders that the list was made from, and their stamps at that time.
        self._watched: tuple[str, ...] = ()
        self._stamp: tuple[tuple[int, int, int] | None, ...] = ()
        self._files: DriverFiles | None = None

    def files(self) -> DriverFiles:
        """The driver's files as they are now.

        Raises NodeIncomplete if there is no driver library: the driver is not installed, or not yet.
        """
        try:
            return self._current()
        except OSError as error:  # the root was removed during the search
            raise NodeIncomplete(
                f"cannot read the NVIDIA driver below {self.path}: {error}",
                "it is tried again; check whether the driver is being replaced",
            ) from error

    def _current(self) -> DriverFiles:
        files = self._files
        # One stat(2) for each folder is far cheaper than a search.
        if files is None or tuple(map(_stamp, self._watched)) != self._stamp:
            # The stamps are taken before the search: a change during it is then noticed by the next call.
            watched = library_files.nearest(self.root, _folders(library_files.driver_version(self.root)))
            stamps = tuple(map(_stamp, watched))
            found = self._find()
            # Equal files stay the same object, by which callers recognise what they derived from them.
            files = files if found == files else found
            self._files, self._watched, self._stamp = files, watched, stamps
        return files

    def _find(self) -> DriverFiles:
        root = self.root.remembering()
        version = library_files.driver_version(root)
        found = library_files.find_libraries(root, version)
        graphics = _find_graphics(root, version, library_files.distinct(root, LIBRARY_FOLDERS))
        binaries = _binaries(root)
        files = DriverFiles(
            version,
            found.libraries,
            (*found.links, *graphics.links),
            tuple(path for name in BINARIES if (path := binaries.get(name))),
            _firmware(root, version),
            _sockets(root),
            binaries.get(HOOK),
            graphics.settings,
            graphics.modules,
        )
        behind = _behind_scripts(root, binaries)
        placed = {root.in_container(there): root.for_host(path) for there, path in behind.items()}
        return replace(_as_in_containers(files, root), behind_scripts=placed)


def _binaries(root: Root) -> dict[str, str]:
    found: dict[str, str] = {}
    # The first folder counts, as in a PATH.
    for folder in library_files.distinct(root, PROGRAM_FOLDERS):
        for name in (*BINARIES, HOOK):
            if name not in found and library_files.is_file(root, f"{folder}/{name}"):
                found[name] = f"/{folder}/{name}"
    return found


def _behind_scripts(root: Root, binaries: Mapping[str, str]) -> dict[str, str]:
    """The programs of other folders that scripts of the same names start, by the path of the script.

    Some hosts have them, to set the linker up. Containers have neither the script's folders nor its
    program, so they get the program itself in its place.
    """
    folders = library_files.distinct(root, PROGRAM_FOLDERS)
    found: dict[str, str] = {}
    for name, script in binaries.items():
        if name == HOOK or not library_files.is_script(root, script):
            continue
        others = (f"/{folder}/{name}" for folder in folders)
        program = next((path for path in others if library_files.is_elf(root, path)), None)
        if program is not None:
            found[script] = program
    return found


def _firmware(root: Root, version: str) -> tuple[str, ...]:
    folders = library_files.distinct(root, _firmware_folders(version))
    return tuple(path for folder in folders for path in library_files.files_in(root, folder, *_FIRMWARE))


def _sockets(root: Root) -> tuple[str, ...]:
    """The sockets of the driver's daemons; the first folder that has one counts."""
    places = (
        [f"{folder}/{name}" for folder in SOCKET_FOLDERS if _is_socket(root, f"{folder}/{name}")]
        for name in SOCKETS
    )
    return tuple(f"/{found[0]}" for found in places if found)


def _is_socket(root: Root, path: str) -> bool:
    # root.at follows links inside of the root: an absolute link of a driver container means its own root.
    real = root.at(path)
    return real is not None and real.is_socket()


def _as_in_containers(found: DriverFiles, root: Root) -> DriverFiles:
    """The found files, whose paths are below the root, with the paths that they have in containers."""
    elsewhere: dict[str, str] = {}

    def moved(path: str) -> str:
        there, source = root.in_container(path), root.for_host(path)
        if path and there != source:
            elsewhere[there] = source
        return there

    links = tuple(
        library_files.Link(root.in_container(one.path), one.target, moved(one.file)) for one in found.links
    )
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
    # An admin can name one more folder by this module parameter; the kernel searches it first.
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
    # NVIDIA's firmware is in a folder named by the driver's version.
    return tuple(f"{folder}/nvidia/{version}" for folder in (custom, *usual) if folder)


def _folders(version: str) -> tuple[str, ...]:
    """All folders that are searched."""
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
    """A file by its absolute path below the driver root, and its path in the container."""

    path: str
    in_container: str


@dataclass(frozen=True, slots=True)
class _GraphicsFiles:
    """The settings with their paths, and X.Org's modules, whose path in the container is the same."""

    settings: tuple[Placed, ...]
    modules: tuple[str, ...]
    links: tuple[library_files.Link, ...]


def _graphics_folders(library_folders: Iterable[str]) -> tuple[str, ...]:
    """The folders below the root that these files are searched in."""
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
    """The files for graphics that exist; if a file is in several folders, the first one counts."""
    settings = [
        *_settings(root, _IN_SHARE, "/usr/share", _SETTINGS_FOLDERS),
        *_settings(root, _IN_ETC, "/etc", _SETTINGS_FOLDERS),
        # Google's installer has Vulkan's files at the root itself.
        *_settings(root, _VULKAN, "/etc", (*_SETTINGS_FOLDERS, "")),
    ]
    modules: list[str] = []
    # The module for GLX carries the driver's version in its name, the X driver does not.
    links: list[library_files.Link] = []
    for name in (_XORG_DRIVER, f"{_GLX_MODULE}.{version}"):
        folder = next(
            (f for f in _xorg_folders(library_folders) if library_files.is_file(root, f"{f}/{name}")), None
        )
        real = None if folder is None else root.at(folder)
        if real is None:
            continue
        modules.append(f"/{folder}/{name}")
        if name != _XORG_DRIVER:
            # X.Org loads the module by its name without the version, so a link must lead to it.
            links += library_files.links_to(real, f"/{folder}", {name}) or [
                library_files.Link(f"/{folder}/{_GLX_MODULE}", name, f"/{folder}/{name}")
            ]
    return _GraphicsFiles(tuple(settings), tuple(modules), tuple(links))


def _settings(root: Root, names: Iterable[str], placed: str, folders: tuple[str, ...]) -> list[Placed]:
    found: dict[str, Placed] = {}
    for name in names:
        path = next(
            (f"{f}/{name}".lstrip("/") for f in folders if library_files.is_file(root, f"{f}/{name}")), None
        )
        if path is not None:
            found.setdefault(path, Placed(f"/{path}", f"{placed}/{name}"))
    return list(found.values())


def _xorg_folders(library_folders: Iterable[str]) -> tuple[str, ...]:
    """The folders that X.Org's modules may be in, the likeliest first."""
    beside = (
        f"{folder.lstrip('/')}/{below}"
        for folder in library_folders
        for below in ("nvidia/xorg", *_XORG_FOLDERS)
    )
    fixed = (f"{folder}/{below}" for folder in ("usr/lib", "usr/lib64") for below in _XORG_FOLDERS)
    old = (f"usr/X11R6/{folder}/{below}" for folder in ("lib", "lib64") for below in _X11_FOLDERS)
    return tuple(dict.fromkeys((*beside, *fixed, *old)))


class InstalledDriver:
    """Finds the root that the driver is installed in, and its files. Safe to use from several threads.

    ``host_root`` is where this process sees the root of the host, None if that is not configured.
    """

    def __init__(self, roots: DriverRoots) -> None:
        self.host_root = roots.host_root
        self._roots = roots
        self._last: tuple[Root, DriverRoot] | None = None

    @classmethod
    def below(cls, seen: Path, on_host: Path | None = None) -> InstalledDriver:
        """The driver below this root and no other."""
        return cls(DriverRoots.fixed(seen, on_host))

    def now(self) -> DriverRoot:
        """The root that has the driver now; the same object as before unless the root is another one.

        Raises NodeIncomplete while no root has a driver.
        """
        # Assigning a tuple is atomic, so no lock is needed: at worst two threads read the same files.
        root, last = self._roots.current(), self._last
        if last is not None and last[0] == root:
            return last[1]
        found = DriverRoot(root)
        self._last = root, found
        return found
