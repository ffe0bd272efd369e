"""Tells a file from the one that was there before, without reading it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

Stamp = tuple[int, int, int]
"""The inode, the time of the last write in nanoseconds, and the size in bytes."""

MISSING: Stamp = (0, 0, 0)
"""In place of the stamp of a folder that is not there."""

_YOUNG_NS = 100_000_000


def stamp_of(path: str | Path) -> Stamp | None:
    """What no later file of this name has; None for one that is younger than a tenth of a second.

    The file that replaces the next one may get the inode of this one again, and the times of files advance in
    steps of some milliseconds: files that follow each other so fast can look the same. Raises OSError.
    """
    status = os.stat(path)  # noqa: PTH116 - on every write
    if time.time_ns() - status.st_mtime_ns < _YOUNG_NS:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def stamps_of(folders: Iterable[str]) -> dict[str, Stamp | None]:
    """As ``stamp_of``, of each of the folders; ``MISSING`` where there is none."""
    found: dict[str, Stamp | None] = {}
    for folder in folders:
        try:
            found[folder] = stamp_of(folder)
        except OSError:
            found[folder] = MISSING
    return found
