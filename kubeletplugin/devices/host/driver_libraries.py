"""Gives programs of the NVIDIA driver its libraries, and nothing else of the folders in which they lie.

A driver root is another system: beside the driver's libraries lies its C library, which does not go with the
linker of this one. So programs are pointed to folders of links to the driver's own files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path, PurePosixPath

from driver.errors import StorageError
from driver.roots.root import Root
from kubeletplugin.devices.host.driver_files import DriverFiles

_DIGITS = 16


def linked_libraries(root: Root, files: DriverFiles, links: Path) -> tuple[Path, ...]:
    """Folders with a link for each of the driver's libraries, to be searched in this order.

    They lie below ``links``, which is ours alone, and are made where they are missing; those of a driver that
    was here before go. Libraries of different folders stay apart, since one of 32 bits may have the name of
    another. Raises StorageError.
    """
    wanted = _wanted(root, files)
    name = hashlib.sha256(json.dumps(wanted).encode()).hexdigest()[:_DIGITS]
    made = links / name
    try:
        if not made.is_dir():
            _make(made, wanted)
            _drop_others(links, made)
    except OSError as error:
        raise StorageError(
            f"links to the driver's libraries cannot be made in {links}: {error.strerror}",
            "make the folder writable, or free space",
        ) from error
    return tuple(made / folder for folder in sorted(wanted))


def _wanted(root: Root, files: DriverFiles) -> dict[str, dict[str, str]]:
    """The folders, and in each the links with what they point to."""
    folders = {str(folder): f"{number:02}" for number, folder in enumerate(_in_order(files))}
    wanted: dict[str, dict[str, str]] = {number: {} for number in folders.values()}
    for library in map(PurePosixPath, files.libraries):
        real = root.at(files.below_root(str(library)))
        wanted[folders[str(library.parent)]][library.name] = str(real or f"{root.seen}{library}")
    for link in files.links:
        path = PurePosixPath(link.path)
        if str(path.parent) in folders:  # others are of no use to the linker
            wanted[folders[str(path.parent)]][path.name] = link.target
    return wanted


def _in_order(files: DriverFiles) -> list[PurePosixPath]:
    """The libraries' folders as the driver root is searched."""
    return list(dict.fromkeys(PurePosixPath(library).parent for library in files.libraries))


def _make(made: Path, wanted: dict[str, dict[str, str]]) -> None:
    """Make the folder whole or not at all: several processes may do so at once."""
    made.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = made.with_name(f".tmp-{made.name}-{os.urandom(6).hex()}")
    try:
        for folder, links in wanted.items():
            (unfinished / folder).mkdir(mode=0o755, parents=True)
            for name, target in links.items():
                (unfinished / folder / name).symlink_to(target)
        unfinished.rename(made)
    except OSError:
        shutil.rmtree(unfinished, ignore_errors=True)
        if not made.is_dir():  # else another process was faster
            raise


def _drop_others(links: Path, made: Path) -> None:
    for other in links.iterdir():
        if other != made:
            shutil.rmtree(other, ignore_errors=True)
