"""Looks at folders below a driver root: which of them exist, each once, and whether one has changed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from driver.roots.root import Root


def distinct(root: Root, folders: Iterable[str]) -> tuple[str, ...]:
    """The folders that exist, each once: /lib is often the same folder as /usr/lib."""
    found: dict[Path, str] = {}
    for folder in folders:
        real = root.at(folder)
        if real is not None and real.is_dir():
            found.setdefault(real, folder)
    return tuple(found.values())


def nearest(root: Root, folders: Iterable[str]) -> tuple[str, ...]:
    """The folders that are there, and above those that are not the nearest: it changes when they come."""
    known: dict[str, tuple[str, bool]] = {"": (str(root.seen), True)}

    def find(folder: str) -> tuple[str, bool]:
        """The nearest folder that is there, and whether it is this one."""
        if folder not in known:
            above, is_above_there = find(folder.rpartition("/")[0])
            # Most of a hundred folders are not there, and then neither are those below them.
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
    """Whether a file lies at the path, or a link to one."""
    real = root.at(path)
    return real is not None and real.is_file()


def stamp(path: str) -> tuple[int, int, int] | None:
    """Device, inode and time of a folder; os.stat on text, since every prepare asks for twenty of them."""
    try:
        status = os.stat(path)  # noqa: PTH116 - see above
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns
