"""A disk that takes nothing more: files there can be read and removed, as on one that is full."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class _Disk:
    """``left`` more files may be begun below ``folder``; without a folder, any number."""

    folder = ""
    left = 0
    refused = 0


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event != "open" or not _Disk.folder or not isinstance(args[0], str):
        return
    writes = isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR) and args[2] & os.O_EXCL
    if not (writes and args[0].startswith(_Disk.folder)):
        return
    if _Disk.left == 0:
        _Disk.refused += 1
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    _Disk.left -= 1


sys.addaudithook(_audit)


@contextmanager
def full_after(files: int, folder: Path) -> Iterator[type[_Disk]]:
    """Within the block the disk takes so many more files; ``refused`` counts those it did not take."""
    _Disk.folder, _Disk.left, _Disk.refused = str(folder), files, 0
    try:
        yield _Disk
    finally:
        _Disk.folder = ""
