"""Finds what graphics programs need of the driver beside its libraries: settings of loaders, X.Org's modules.

The loaders in a container look in their usual folders, wherever the host has the files: so each setting has a
place of its own in the container (container toolkit v1.20.1, internal/discover/graphics.go).
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from driver.roots.root import Root
from kubeletplugin.devices.host.folders import is_file
from kubeletplugin.devices.host.library_files import Link, links_to

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
class Placed:
    """A file by its absolute path below the driver root, and where the container has it."""

    path: str
    in_container: str


@dataclass(frozen=True, slots=True)
class GraphicsFiles:
    """The settings with their places, and X.Org's modules, which lie in the container where they lie here."""

    settings: tuple[Placed, ...]
    modules: tuple[str, ...]
    links: tuple[Link, ...]


def graphics_folders(library_folders: Iterable[str]) -> tuple[str, ...]:
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


def find_graphics(root: Root, version: str, library_folders: Iterable[str]) -> GraphicsFiles:
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
    return GraphicsFiles(tuple(settings), tuple(modules), tuple(links))


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
