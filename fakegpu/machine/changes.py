"""Waits for changes of a machine's state without polling, and reads a file again only when it was replaced.

Threads report changes of a state in memory. For a file that several processes share, the kernel reports them
(inotify(7)); the file is always replaced by rename.
"""

from __future__ import annotations

import ctypes
import os
import select
from collections.abc import Callable
from pathlib import Path
from threading import Condition
from typing import Generic, Protocol, TypeVar

_MOVED_TO = 0x80
_MOST_BYTES = 65536

# Where the kernel gives no watch (a limit of the user, a file system without), it is looked this often.
_LOOK_AGAIN_SECONDS = 0.1

T = TypeVar("T")


class Changes(Protocol):
    """The changes since it was made; one thread waits."""

    def wait(self, seconds: float) -> None:
        """Wait for a change since the last wait; it may end early without one."""
        ...

    def wake(self) -> None:
        """End the wait of another thread, or the next one."""
        ...

    def close(self) -> None:
        """Free its resources; nobody waits any more."""
        ...


class VersionChanges:
    """Changes that are notified with ``changed``, and counted by ``version``."""

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
        """Nothing is held."""


class FolderChanges:
    """Files that are renamed into a folder, which is how a file is replaced."""

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
            seconds = min(seconds, _LOOK_AGAIN_SECONDS)
        for descriptor, _ in self._poll.poll(max(seconds, 0.0) * 1000):
            os.read(descriptor, 8 if descriptor == self._wake else _MOST_BYTES)

    def wake(self) -> None:
        """End a wait."""
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Close the descriptors; once more does nothing."""
        for descriptor in (self._wake, self._inotify):
            if descriptor >= 0:
                os.close(descriptor)
        self._wake = self._inotify = -1

    def __del__(self) -> None:
        self.close()


def _watch(folder: Path) -> int:
    """A descriptor of inotify that reports files renamed into the folder; -1 where there is none."""
    libc = ctypes.CDLL(None)
    descriptor = int(libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
    if descriptor >= 0 and libc.inotify_add_watch(descriptor, os.fsencode(folder), _MOVED_TO) < 0:
        os.close(descriptor)
        return -1
    return descriptor


class ReplacedFile(Generic[T]):
    """What a file says; ``parse`` reads its text and may raise ValueError."""

    def __init__(self, path: Path, parse: Callable[[str], T]) -> None:
        self.path = path
        self._parse = parse
        self._descriptor = -1
        self._inode = (-1, -1)
        self._value: list[T] = []

    def read(self) -> T:
        """What the file says now; raises FileNotFoundError, ValueError."""
        status = self.path.stat()
        if not self._value or (status.st_dev, status.st_ino) != self._inode:
            self._load()
        return self._value[0]

    def replace(self, text: str) -> None:
        """Replace the file. No fsync: a fake machine need not survive the crash of a real one."""
        temporary = self.path.with_name(f".{self.path.name}-{os.urandom(6).hex()}")
        temporary.write_text(text, encoding="utf-8")
        temporary.rename(self.path)

    def _load(self) -> None:
        # The file that was read stays open: its inode number cannot be given to a newer file, so
        # that equal numbers mean the same content.
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
