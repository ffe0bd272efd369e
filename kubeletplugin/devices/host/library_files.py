"""Finds the driver's libraries below its root, their folders, and the links that lead to them.

Libraries carry the driver's version in their file name (``libcuda.so.580.65.06``); a few carry their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from driver.errors import NodeIncomplete
from driver.roots.places import LIBRARY_FOLDERS
from driver.roots.probe import LIBRARIES, prove
from driver.roots.root import Root

# libcuda.so.580.65.06: the name that the linker knows, and the driver's version.
_VERSIONED = re.compile(r"^(?P<stem>[\w.+-]+?\.so)\.(?P<version>\d+\.\d+(?:\.\d+)?)$")
# Libraries that NVIDIA ships with the driver but that have versions of their own.
_OWN_VERSION = re.compile(
    r"^lib(?:nvidia-egl-(?:gbm|wayland2?|xcb|xlib)\.so\.\d+\.\d+(?:\.\d+)?|nvidia-nvvm70\.so\.[\d.]+)$"
)
# The fifth byte of an ELF file, EI_CLASS, is 1 for 32 bits and 2 for 64.
_SCRIPT, _ELF = b"#!", b"\x7fELF"
_ELF_OF_32_BITS = _ELF + b"\x01"

_ALWAYS_LINKED = {
    "libcuda.so": ("libcuda.so", "libcuda.so.1"),
    "libGLX_nvidia.so": ("libGLX_indirect.so.0", ""),
    "libnvidia-opticalflow.so": ("libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1"),
    "libnvidia-vulkan-producer.so": ("libnvidia-vulkan-producer.so", ""),
    "libnvidia-allocator.so": ("gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1"),
}
"""Library -> a link to it that programs need, and the link's target; made even if the host lacks it.

An empty target is the library itself. Programs open libcuda.so, GLVND's indirect GLX and GBM's backend by
these names (container toolkit v1.20.1, internal/discover/symlinks.go and graphics.go).
"""


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link in the container: at ``path``, with the text ``target``, to the driver's ``file``.

    ``file`` is empty if the link leads to something else, such as a device node.
    """

    path: str
    target: str
    file: str = ""


@dataclass(frozen=True, slots=True)
class LibraryFiles:
    """The libraries by their absolute path below the driver root, folder by folder, and their links."""

    libraries: tuple[str, ...]
    links: tuple[Link, ...]


def driver_version(root: Root) -> str:
    """The version of the installed driver, from what libnvidia-ml.so.1 or libcuda.so.1 points to.

    Raises NodeIncomplete if neither is there.
    """
    looked, _ = prove(root)
    if looked.version is None:
        raise NodeIncomplete(
            f"no NVIDIA driver library ({', '.join(LIBRARIES)}) was found below {root.seen}: {looked.reason}",
            "install the driver, or set --driver-root to the folder that it is installed in",
        )
    return looked.version


def find_libraries(root: Root, version: str) -> LibraryFiles:
    """The libraries of this version and those with a version of their own, and the links beside them."""
    folders = distinct(root, LIBRARY_FOLDERS)
    libraries: list[str] = []
    links: list[Link] = []
    # VDPAU's library is in a subfolder of its own.
    for folder in (*folders, *distinct(root, (f"{folder}/vdpau" for folder in folders))):
        real = root.at(folder)
        if real is not None:
            found, aliases = _in_folder(real, f"/{folder}", version)
            libraries += found
            links += aliases
    return LibraryFiles(tuple(libraries), tuple(links))


def links_to(folder: Path, shown: str, names: set[str]) -> list[Link]:
    """The links of a folder that lead to its files of these names; containers see the folder at ``shown``."""
    leads_to = {name: f"{shown}/{name}" for name in names}
    links: list[Link] = []
    aliases = [entry for entry in sorted(folder.iterdir()) if entry.is_symlink()]
    # Two rounds: libcuda.so, the name that programs are built with, points to libcuda.so.1, itself a link.
    for _ in range(2):
        for entry in aliases:
            file = leads_to.get(entry.readlink().name)
            if file is not None and entry.name not in leads_to:
                links.append(Link(f"{shown}/{entry.name}", entry.readlink().name, file))
        leads_to |= {PurePosixPath(link.path).name: link.file for link in links}
    return links


def _in_folder(folder: Path, shown: str, version: str) -> tuple[list[str], list[Link]]:
    names = {entry.name for entry in folder.iterdir() if _is_wanted(entry, version)}
    links = links_to(folder, shown, names)
    there = {link.path for link in links}
    for library, (name, target) in _ALWAYS_LINKED.items():
        file = f"{library}.{version}"
        if file in names and f"{shown}/{name}" not in there:
            links.append(Link(f"{shown}/{name}", target or file, f"{shown}/{file}"))
    return [f"{shown}/{name}" for name in sorted(names)], links


def _is_wanted(entry: Path, version: str) -> bool:
    match = _VERSIONED.match(entry.name)
    if not (match and match["version"] == version) and not _OWN_VERSION.match(entry.name):
        return False
    # Links are made in the container; only the files themselves are mounted.
    return not entry.is_symlink() and not _is_of_32_bits(entry)


def _is_of_32_bits(file: Path) -> bool:
    """Whether it is a library for programs of 32 bits; NVIDIA's CDI generator leaves those out as well."""
    return _beginning(file, len(_ELF_OF_32_BITS)) == _ELF_OF_32_BITS


def distinct(root: Root, folders: Iterable[str]) -> tuple[str, ...]:
    """The folders that exist, each once: /lib is often the same folder as /usr/lib."""
    found: dict[Path, str] = {}
    for folder in folders:
        real = root.at(folder)
        if real is not None and real.is_dir():
            # Resolved paths are compared: on merged-usr systems both names lead to one folder.
            found.setdefault(real, folder)
    return tuple(found.values())


def nearest(root: Root, folders: Iterable[str]) -> tuple[str, ...]:
    """The folders that exist, and for each other one its nearest ancestor that does.

    Making a folder changes the time of its parent. So the ancestor's stamp tells when a missing one appears.
    """
    known: dict[str, tuple[str, bool]] = {"": (str(root.seen), True)}

    def find(folder: str) -> tuple[str, bool]:
        """The nearest folder that exists, and whether it is this one."""
        if folder not in known:
            above, is_above_there = find(folder.rpartition("/")[0])
            # Most of a hundred folders do not exist; then the ones below them need no call of the kernel.
            real = root.at(folder) if is_above_there else None
            is_there = real is not None and real.is_dir()
            known[folder] = (str(real) if is_there else above), is_there
        return known[folder]

    return tuple(dict.fromkeys(find(folder.strip("/"))[0] for folder in folders))


def files_in(root: Root, folder: str, *patterns: str) -> tuple[str, ...]:
    """The files of a folder that match the patterns, by their path below the root."""
    real = root.at(folder)
    found = (
        () if real is None else (name for one in patterns for name in sorted(f.name for f in real.glob(one)))
    )
    return tuple(f"/{folder}/{name}" for name in found)


def is_file(root: Root, path: str) -> bool:
    """Whether there is a file at the path, or a link to one."""
    real = root.at(path)
    return real is not None and real.is_file()


def is_script(root: Root, path: str) -> bool:
    """Whether the file at the path begins with ``#!``, so that the kernel starts another program for it."""
    return _beginning(root.at(path), len(_SCRIPT)) == _SCRIPT


def is_elf(root: Root, path: str) -> bool:
    """Whether the file at the path is a compiled program or library."""
    return _beginning(root.at(path), len(_ELF)) == _ELF


def _beginning(file: Path | None, count: int) -> bytes:
    """The first bytes of a file, none if it is not there or cannot be read."""
    if file is None:
        return b""
    try:
        with file.open("rb") as stream:
            return stream.read(count)
    except OSError:
        return b""
