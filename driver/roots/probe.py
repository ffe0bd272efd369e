"""Looks at the places where an NVIDIA driver may be installed, and says why each is used or not."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from driver.roots.places import LIBRARY_FOLDERS, Place
from driver.roots.root import Root, below

LIBRARIES = ("libnvidia-ml.so.1", "libcuda.so.1")
"""Links that every installation of the driver has. They lead to the files of the version in use."""

_VERSION = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)?)$")


@dataclass(frozen=True, slots=True)
class ProbedPlace:
    """What was found at one place. ``path`` is on the host; ``version`` is that of the driver there.

    ``reason`` says why the place is not used; it is empty for the place that is used.
    """

    name: str
    path: str
    version: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of probing all places: the root to use, if there is one, and what was found at each place.

    ``library`` is the path, for this process, of the library that proves the root.
    """

    looked: tuple[ProbedPlace, ...]
    root: Root | None = None
    library: Path | None = None


def probe(places: Sequence[Place], host_root: Path, sysfs_root: Path) -> Probe:
    """Look at each place below ``host_root``. The first one with a usable driver is used."""
    loaded = loaded_version(sysfs_root)
    looked: list[ProbedPlace] = []
    used: ProbedPlace | None = None
    result: tuple[Root, Path] | None = None
    for place in places:
        here, found = look_at(place, host_root)
        if found is not None and used is not None:
            here = replace(here, reason=f"{used.path} is used first")
        # The kernel driver works only with libraries of its own version (NVML_ERROR_LIB_RM_VERSION_MISMATCH).
        # A place with another version is a leftover, or is just being replaced.
        elif found is not None and loaded not in (None, here.version):
            here = replace(here, reason=f"version {loaded} of the driver is loaded in the kernel")
        elif found is not None:
            used, result = here, found
        looked.append(here)
    root, library = result or (None, None)
    return Probe(tuple(looked), root, library)


def look_at(place: Place, host_root: Path) -> tuple[ProbedPlace, tuple[Root, Path] | None]:
    """Look at one place. If it has a driver, also return its root and the library that proves it."""
    # Links of the path itself are the host's, also if the place is a root file system of its own.
    real = below(host_root, place.path)
    if real is None or not os.path.isdir(real):  # noqa: PTH112 - raises nothing, as its cousins do
        return ProbedPlace(place.name, place.path, reason="the folder does not exist"), None
    links = real if place.own_links else host_root
    # The place may be a link itself, /opt/nvidia/current for example.
    root = Root(place, real, Path("/") / real.relative_to(host_root), links)
    return prove(root)


def prove(root: Root) -> tuple[ProbedPlace, tuple[Root, Path] | None]:
    """Look for a library which proves that a driver is installed below a root."""
    here = ProbedPlace(root.place.name, root.place.path)
    broken: list[str] = []
    for path in _paths(root):
        file = root.at(path)
        if file is None:
            broken.append(f"{path} is a broken link")
        # An installer that was interrupted may leave empty files.
        elif not _is_filled(file):
            broken.append(f"{path} is empty")
        elif (version := _VERSION.search(file.name)) is None:
            broken.append(f"{path} is {file.name}, which has no version in its name")
        else:
            return replace(here, version=version[1]), (root, file)
    if broken:
        return replace(here, reason=f"the driver is incomplete: {broken[0]}"), None
    return replace(here, reason=_why_none(root)), None


def _is_filled(file: Path) -> bool:
    """Whether it is a regular file with content."""
    try:
        # The driver may be removed at this moment, so the file that was just found may be gone.
        status = file.stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size > 0


def _why_none(root: Root) -> str:
    """Why there is no library below a root."""
    try:
        is_empty = not any(root.seen.iterdir())
    except OSError as error:
        return f"the folder cannot be read: {error.strerror}"
    return "the folder is empty" if is_empty else f"no {' or '.join(LIBRARIES)}"


def loaded_version(sysfs_root: Path) -> str | None:
    """The version of the loaded NVIDIA kernel driver; None if none is loaded, or sysfs does not show it."""
    try:
        # Modules show their MODULE_VERSION here while they are loaded.
        return (sysfs_root / "module/nvidia/version").read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _paths(root: Root) -> Iterable[str]:
    for folder in LIBRARY_FOLDERS:
        real = root.at(folder)
        if real is not None:
            yield from (f"/{folder}/{name}" for name in LIBRARIES if os.path.lexists(real / name))
