"""Looks at folders below a driver root: which of them exist, each once, and whether one has changed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

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
    return tuple(dict.fromkeys(str(_nearest(root, PurePosixPath(folder))) for folder in folders))


def stamp(path: str) -> tuple[int, int, int] | None:
    """Device, inode and time of a folder; os.stat on text, since every prepare asks for some twenty."""
    try:
        status = os.stat(path)  # noqa: PTH116 - see above
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def has_file(root: Root, path: str) -> bool:
    """Whether a file lies at a path below the root, links followed."""
    real = root.at(path)
    return real is not None and real.is_file()


def _nearest(root: Root, folder: PurePosixPath) -> Path:
    for one in (folder, *folder.parents):
        real = root.at(str(one))
        if real is not None and real.is_dir():
            return real
    return root.seen
