"""Knows of the other instances of the plugin that share the data folder, as two do in a rolling update.

All of it is locks over single bytes of one file, which the kernel lets go when their holder dies.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from driver.errors import StorageError
from kubeletplugin.claims.journal.locks import one_byte, stands_in_the_way

_LIVES, _STARTS = 0, 1
"""The byte that each instance holds as long as it lives, together with the others, and that of its start."""

_AGAIN_SECONDS = 0.02


class Peers:
    """Tells whether another instance of the plugin may have changed the shared data folder.

    Each instance sets the time of a common file when it starts, which also a full disk lets it do, and
    holds a shared lock on it as long as it lives: so a look at the time and at the lock, two system
    calls, tells a lone instance that all it remembers is still true.
    """

    def __init__(self, file: Path) -> None:
        """Raises StorageError when the file cannot be made or locked."""
        self._file = file
        try:
            self._descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, one_byte(fcntl.F_RDLCK, _LIVES))
            now_ns = time.time_ns()
            os.utime(self._descriptor, ns=(now_ns, now_ns))
        except OSError as error:
            raise StorageError(
                f"the file {file} cannot be used: {error.strerror}", f"make {file.parent} writable"
            ) from error

    def watch(self) -> Callable[[], bool]:
        """A question for one asker: whether anybody else could have written since it asked the last time.

        The first answer is yes. Askers do not learn from each other's answers, and one that then fails to
        read has to remember that it has to. Each calls from one thread at a time.
        """
        seen = -1, True

        def may_have_written() -> bool:
            nonlocal seen
            before = seen
            seen = os.fstat(self._descriptor).st_mtime_ns, not self.alone()
            return seen != before or seen[1]

        return may_have_written

    def alone(self) -> bool:
        """Whether no other instance lives."""
        probe = fcntl.fcntl(self._descriptor, fcntl.F_OFD_GETLK, one_byte(fcntl.F_WRLCK, _LIVES))
        return not stands_in_the_way(probe)

    @contextmanager
    def starting(self, timeout_seconds: float) -> Iterator[None]:
        """Let one instance at a time run the block, which belongs to its start.

        Raises StorageError when another one does not get through it within ``timeout_seconds``.
        """
        deadline = time.monotonic() + timeout_seconds
        while not self._takes_its_turn():
            if time.monotonic() > deadline:
                raise StorageError(
                    f"another instance holds {self._file} and has not started within {timeout_seconds:.0f} s",
                    "look for a plugin on this node that hangs, and end it",
                )
            threading.Event().wait(_AGAIN_SECONDS)  # fcntl(2) waits for ever or not at all
        try:
            yield
        finally:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, one_byte(fcntl.F_UNLCK, _STARTS))

    def _takes_its_turn(self) -> bool:
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, one_byte(fcntl.F_WRLCK, _STARTS))
        except (BlockingIOError, PermissionError):
            return False
        except OSError as error:
            raise StorageError(
                f"the file {self._file} cannot be locked: {error.strerror}", "check the disk"
            ) from error
        return True

    def close(self) -> None:
        """Let the others know that this instance is gone."""
        os.close(self._descriptor)
