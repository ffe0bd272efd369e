"""Waits for changes of a machine's state without polling, and reads a file again only if it was replaced.

A change in memory is signalled by a condition. The change of a file that processes share is reported by the
kernel (inotify(7)); such a file is always replaced by rename.
"""

from __future__ import annotations

import ctypes
import os
import select
from collections.abc import Callable
from pathlib import Path
from threading import Condition
from typing import Generic, Protocol, TypeVar

# IN_MOVED_TO of <sys/inotify.h>: a file was renamed into the folder.
_MOVED_TO = 0x80
_MOST_BYTES = 65536

# How often to look if the kernel gives no watch: the user has too many, or the file system supports none.
_POLL_SECONDS = 0.1

T = TypeVar("T")


class Changes(Protocol):
    """The changes since this object was made; one thread waits for them."""

    def wait(self, seconds: float) -> None:
        """Wait for a change since the last wait; may return early without one."""
        ...

    def wake(self) -> None:
        """End the wait of another thread, or the next wait."""
        ...

    def close(self) -> None:
        """Free the resources; no thread may wait any more."""
        ...


class VersionChanges:
    """Changes that are signalled by the condition ``changed`` and counted by ``version``."""

    def __init__(self, changed: Condition, version: Callable[[], int]) -> None:
        self._changed = changed
        self._version = version
        self._seen = version()
        self._woken = False

    def wait(self, seconds: float) -> None:
        """Wait for another version."""
        with self._changed:
            self._changed.wait_for(lambda: self._woken or self._version() != self._seen, seconds)
            self._seen = self._version()
            self._woken = False

    def wake(self) -> None:
        """End a wait."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def close(self) -> None:
        """Do nothing: there are no resources."""


class FolderChanges:
    """Renames of files into a folder, which is how a file is replaced."""

    def __init__(self, folder: Path) -> None:
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._inotify = _watch(folder)
        self._poll = select.poll()
        for descriptor in (self._wake, self._inotify):
            if descriptor >= 0:
                self._poll.register(descriptor, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Wait for a file that is replaced."""
        if self._inotify < 0:
            seconds = min(seconds, _POLL_SECONDS)
        for descriptor, _ in self._poll.poll(max(seconds, 0.0) * 1000):
            # Reading empties the queue of events, or resets the counter of the eventfd, which is 8 bytes.
            os.read(descriptor, 8 if descriptor == self._wake else _MOST_BYTES)

    def wake(self) -> None:
        """End a wait."""
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Close the descriptors; a second call does nothing."""
        for descriptor in (self._wake, self._inotify):
            if descriptor >= 0:
                os.close(descriptor)
        self._wake = self._inotify = -1

    def __del__(self) -> None:
        self.close()


def _watch(folder: Path) -> int:
    """An inotify descriptor that reports files renamed into the folder; -1 if the kernel gives none."""
    # Python's standard library has no inotify.
    libc = ctypes.CDLL(None)
    descriptor = int(libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
    if descriptor >= 0 and libc.inotify_add_watch(descriptor, os.fsencode(folder), _MOVED_TO) < 0:
        os.close(descriptor)
        return -1
    return descriptor


class ReplacedFile(Generic[T]):
    """A file that is replaced by rename; ``parse`` reads its text and may raise ValueError."""

    def __init__(self, path: Path, parse: Callable[[str], T]) -> None:
        self.path = path
        self._parse = parse
        self._descriptor = -1
        self._inode = (-1, -1)
        self._value: list[T] = []

    def read(self) -> T:
        """The parsed file as it is now; raises FileNotFoundError, ValueError."""
        status = self.path.stat()
        if not self._value or (status.st_dev, status.st_ino) != self._inode:
            self._load()
        return self._value[0]

    def replace(self, text: str) -> None:
        """Replace the file. No fsync: a fake machine does not have to survive a power cut."""
        temporary = self.path.with_name(f".{self.path.name}-{os.urandom(6).hex()}")
        temporary.write_text(text, encoding="utf-8")
        temporary.rename(self.path)

    def _load(self) -> None:
        # The file that was read stays open, so the file system cannot give its inode number to a newer file:
        # equal numbers mean the same content.
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        with os.fdopen(os.dup(descriptor), encoding="utf-8") as file:
            text = file.read()
        try:
            self._value = [self._parse(text)]
        except ValueError:
            os.close(descriptor)
            raise
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor
        self._inode = (status.st_dev, status.st_ino)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
