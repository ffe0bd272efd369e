"""Writes files that survive a crash: temporary file, fsync, rename, fsync of the folder."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from driver.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEMPORARY_PREFIX = ".tmp-"
"""Names of unfinished files start so; whatever lists a folder skips them."""


@contextmanager
def _storage_errors(path: Path, doing: str) -> Iterator[None]:
    """Translate the operating system's refusal into an error that names the file and the way out."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{doing} {path} failed: {error.strerror}",
            f"see that the folder {path.parent} exists, can be written to and has space",
        ) from error


def fsync_folder(folder: str | Path) -> None:
    """Make renames and removals inside ``folder`` durable."""
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


def write_durably(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace the file at ``path`` by ``data`` so that after a crash either the old or the new is there.

    Raises StorageError, with the old file untouched.
    """
    # Text rather than paths: every claim comes here three times.
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f"{TEMPORARY_PREFIX}{name}-{os.urandom(6).hex()}")  # noqa: PTH118 - text
    with _storage_errors(path, "writing"):
        try:
            descriptor = os.open(
                temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode
            )
            try:
                _write_all(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.rename(temporary, path)  # noqa: PTH104 - text
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)  # noqa: PTH108 - text
            raise
        fsync_folder(folder or os.curdir)


def remove_durably(path: Path) -> None:
    """Remove the file at ``path`` if it is there, so that it stays removed after a crash.

    Raises StorageError.
    """
    with _storage_errors(path, "removing"):
        try:
            path.unlink()
        except FileNotFoundError:
            return
        fsync_folder(path.parent)
