"""Writes files as a whole, so that they survive the end of the process, or also a power cut.

A file that is needed only within one boot has to survive the process alone. A temporary file and a rename are
enough for that, since the kernel keeps what was written. A file that has to survive a power cut also needs
fsync, of the file and of its folder, which waits for the disk.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from driver.errors import StorageError

TEMPORARY_PREFIX = ".tmp-"
"""Names of unfinished files start with this; code that lists a folder skips them."""

_TOKEN_DIGITS = 12


@contextmanager
def storage_errors(path: str | Path, doing: str) -> Iterator[None]:
    """Translate OSError, raised while ``doing`` something with the path, into StorageError with a way out."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{doing} {path} failed: {error.strerror}",
            f"check that the folder {Path(path).parent} exists, is writable and has space",
        ) from error


def regular_only(path: str | Path, flags: int) -> int:
    """An opener for ``open`` that refuses all but regular files: opening a FIFO would wait for ever."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return descriptor


def make_private_folder(folder: Path) -> None:
    """Make a folder that only we may enter, and missing folders above it; raises StorageError."""
    with storage_errors(folder, "making"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def fsync_folder(folder: str | Path) -> None:
    """Make renames and removals in ``folder`` survive a power cut."""
    # A rename or an unlink is a change of the folder. It is on the disk once the folder itself is synced.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    """Write every byte."""
    # write(2) may take a part only, on a disk that is nearly full for example, and fails with ENOSPC only
    # when it can take nothing.
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def write_atomically(path: str | Path, data: bytes, mode: int = 0o600) -> None:
    """Replace the file at ``path``. Whenever the process ends, the file is either the old or the new one.

    After a power cut it may be the old one, the new one, a part of it, or missing. Raises StorageError; the
    old file is untouched then.
    """
    with storage_errors(path, "writing"):
        _replace(path, data, mode, lasting=False)


def write_durably(path: str | Path, data: bytes, mode: int = 0o600) -> None:
    """Replace the file at ``path`` so that even a power cut leaves either the old file or the new one.

    Once this has returned, the new one stays. Raises StorageError; the file is then the old one, or a new one
    that a power cut may undo.
    """
    with storage_errors(path, "writing"):
        _replace(path, data, mode, lasting=True)
        fsync_folder(os.path.dirname(path) or os.curdir)  # noqa: PTH120 - text or path


def _replace(path: str | Path, data: bytes, mode: int, *, lasting: bool) -> None:
    # Plain text rather than Path objects, since every claim comes here three times.
    folder, name = os.path.split(path)
    # In the same folder, since rename(2) works within one file system. The token keeps two writers apart.
    temporary = os.path.join(folder, f"{TEMPORARY_PREFIX}{name}-{secrets.token_hex(_TOKEN_DIGITS // 2)}")  # noqa: PTH118 - text
    try:
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode
        )
        try:
            # open(2) takes the umask's bits away from the mode.
            os.fchmod(descriptor, mode)
            if data and os.path.exists(path):  # noqa: PTH110 - text
                # When a rename replaces a file, ext4 first sends the new one to the disk if its blocks are
                # not allocated yet (auto_da_alloc, ext4(5)). A claim would wait for that. A new file does
                # without: if it is removed before its blocks are allocated, there is nothing to free.
                os.posix_fallocate(descriptor, 0, len(data))
            _write_all(descriptor, data)
            if lasting:
                # Before the rename. Otherwise a power cut may leave the new name with an empty file, since
                # file systems may write the rename before the data.
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        # rename(2) replaces the old file in one step: readers see the old or the new one, never none.
        os.rename(temporary, path)  # noqa: PTH104 - text
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)  # noqa: PTH108 - text
        raise


def remove(path: str | Path) -> None:
    """Remove the file at ``path`` if it exists; a power cut may bring it back. Raises StorageError."""
    with storage_errors(path, "removing"), suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108 - text


def remove_durably(path: str | Path) -> None:
    """Remove the file at ``path`` if it exists; it stays removed after a power cut. Raises StorageError."""
    with storage_errors(path, "removing"):
        try:
            os.unlink(path)  # noqa: PTH108 - text
        except FileNotFoundError:
            return
        fsync_folder(os.path.dirname(path) or os.curdir)  # noqa: PTH120 - text or path


def remove_unfinished(folder: Path, ours: Callable[[str], bool], alone: Callable[[], bool]) -> int:
    """Remove the temporary files that a dead process left in ``folder``, and return their number.

    ``ours(name)`` says whether the finished file would have been ours. ``alone()`` says whether no other
    living process may be writing such files. Raises StorageError for a file that cannot be removed, after all
    others are removed.
    """
    try:
        names = [path.name for path in folder.iterdir() if ours(_finished_name(path.name))]
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StorageError(f"listing {folder} failed: {error.strerror}", "check the disk") from error
    # Ask only after listing, so that no file of a process that has just started is in the list.
    if not names or not alone():
        return 0
    # The stack runs all removals even if one fails, and raises its error at the end.
    with ExitStack() as stack:
        for name in names:
            stack.callback(remove, folder / name)
    return len(names)


def _finished_name(name: str) -> str:
    """The name that an unfinished file was to get; empty if the file is not an unfinished one."""
    finished, dash, token = name.removeprefix(TEMPORARY_PREFIX).rpartition("-")
    if not name.startswith(TEMPORARY_PREFIX) or not dash or len(token) != _TOKEN_DIGITS:
        return ""
    return finished if set(token) <= set("0123456789abcdef") else ""


def put_aside(path: Path) -> Path:
    """Rename a damaged file to ``*.unreadable``, replacing an earlier one, and return its new path.

    Raises StorageError.
    """
    aside = path.with_suffix(".unreadable")
    with storage_errors(path, "putting aside"):
        path.replace(aside)
    return aside
