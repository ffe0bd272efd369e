"""Tells whether a file was replaced, without reading it."""

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
    """A stamp that no later file of this name has; None if the file is younger than a tenth of a second.

    Raises OSError.
    """
    status = os.stat(path)  # noqa: PTH116 - on every write
    # The kernel gives free inodes to new files again, and file times advance in steps of some milliseconds.
    # So files that follow each other quickly can have the same stamp, and such a stamp is worth nothing.
    # A file of the future, which was written before the time of day was set back, is not young.
    if abs(time.time_ns() - status.st_mtime_ns) < _YOUNG_NS:
        return None
    # Inode, time and size together: each of them alone may be the same for another file.
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
