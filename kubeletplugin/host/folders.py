"""Looks at folders below a driver root: which of them exist, each once, and whether one has changed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def distinct(root: Path, folders: Iterable[str]) -> tuple[str, ...]:
    """The folders that exist, each once: /lib is often the same folder as /usr/lib."""
    found: dict[tuple[int, int], str] = {}
    for folder in folders:
        try:
            status = (root / folder).stat()
        except OSError:
            continue
        found.setdefault((status.st_dev, status.st_ino), folder)
    return tuple(found.values())


def nearest(root: Path, folders: Iterable[str]) -> tuple[str, ...]:
    """The folders that are there, and above those that are not the nearest: it changes when they come."""
    wanted = [root / folder for folder in folders]
    there = (next(f for f in (folder, *folder.parents) if f.is_dir() or f == root) for folder in wanted)
    return tuple(dict.fromkeys(map(str, there)))


def stamp(path: str) -> tuple[int, int] | None:
    """Inode and time of a folder; os.stat on text, since every prepare asks for some twenty of them."""
    try:
        status = os.stat(path)  # noqa: PTH116 - see above
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
