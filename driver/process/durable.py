"""Writes files whole, so that they outlive the end of the process, or a power cut as well.

What means something only within one boot has to outlive the process alone: a temporary file and a rename
do, since the kernel keeps what it was given. What has to outlive a power cut needs fsync as well, of the
file and of its folder, which takes the disk's time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from driver.errors import StorageError

TEMPORARY_PREFIX = ".tmp-"
"""Names of unfinished files start so; whatever lists a folder skips them."""

_RANDOM_BYTES = 6


@contextmanager
def storage_errors(path: str | Path, doing: str) -> Iterator[None]:
    """Translate the operating system's refusal of ``doing`` something into an error with the way out."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{doing} {path} failed: {error.strerror}",
            f"see that the folder {Path(path).parent} exists, can be written to and has space",
        ) from error


def make_private_folder(folder: Path) -> None:
    """Make a folder of ours if it is not there, with those above it; raises StorageError."""
    with storage_errors(folder, "making"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def fsync_folder(folder: str | Path) -> None:
    """Make renames and removals inside ``folder`` outlive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    """Write every byte; a disk that is nearly full may take a part only, and then refuses the rest."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def write_atomically(path: str | Path, data: bytes, mode: int = 0o600) -> None:
    """Replace the file at ``path`` by ``data``; whenever the process ends, the old or the new one is there.

    After a power cut the file may be the old one, the new one, a part of it, or missing. Raises
    StorageError, with the old file untouched.
    """
    with storage_errors(path, "writing"):
        _replace(path, data, mode, lasting=False)


def write_durably(path: str | Path, data: bytes, mode: int = 0o600) -> None:
    """Replace the file at ``path`` by ``data`` so that also a power cut leaves the old file or the new one.

    Once this returns it leaves the new one. Raises StorageError, with the old file untouched, or with the
    new one there that a power cut may undo.
    """
    with storage_errors(path, "writing"):
        _replace(path, data, mode, lasting=True)
        fsync_folder(os.path.dirname(path) or os.curdir)  # noqa: PTH120 - text or path


def _replace(path: str | Path, data: bytes, mode: int, *, lasting: bool) -> None:
    # Text rather than paths: every claim comes here three times.
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f"{TEMPORARY_PREFIX}{name}-{os.urandom(_RANDOM_BYTES).hex()}")  # noqa: PTH118 - text
    try:
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode
        )
        try:
            os.fchmod(descriptor, mode)  # open(2) takes away what the umask has
            _write_all(descriptor, data)
            if lasting:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, path)  # noqa: PTH104 - text
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)  # noqa: PTH108 - text
        raise


def remove(path: str | Path) -> None:
    """Remove the file at ``path`` if it is there; a power cut may bring it back. Raises StorageError."""
    with storage_errors(path, "removing"), suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108 - text


def remove_durably(path: str | Path) -> None:
    """Remove the file at ``path`` if it is there, so that it stays removed after a power cut.

    Raises StorageError.
    """
    with storage_errors(path, "removing"):
        try:
            os.unlink(path)  # noqa: PTH108 - text
        except FileNotFoundError:
            return
        fsync_folder(os.path.dirname(path) or os.curdir)  # noqa: PTH120 - text or path


def remove_unfinished(folder: Path, ours: Callable[[str], bool], alone: Callable[[], bool]) -> int:
    """Remove the temporary files that a process which is gone has left in ``folder``; how many they were.

    ``ours(name)`` says whether the finished file would have been ours. ``alone()`` says whether no other
    process lives that may be writing such files; it is asked once they are listed, so that none of a
    process that has just begun is among them. Raises StorageError for one that cannot be removed, once all
    others are.
    """
    try:
        names = [path.name for path in folder.iterdir() if ours(_finished_name(path.name))]
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StorageError(f"listing {folder} failed: {error.strerror}", "check the disk") from error
    if not names or not alone():
        return 0
    with ExitStack() as stack:
        for name in names:
            stack.callback(remove, folder / name)
    return len(names)


def _finished_name(name: str) -> str:
    """The name that an unfinished file was to get; empty for any other file's name."""
    finished, dash, token = name.removeprefix(TEMPORARY_PREFIX).rpartition("-")
    if not name.startswith(TEMPORARY_PREFIX) or not dash or len(token) != 2 * _RANDOM_BYTES:
        return ""
    return finished if set(token) <= set("0123456789abcdef") else ""


def put_aside(path: Path) -> Path:
    """Move a damaged file out of the way, over the one that was there before; where it lies now.

    Raises StorageError.
    """
    aside = path.with_suffix(".unreadable")
    with storage_errors(path, "putting aside"):
        path.replace(aside)
    return aside
