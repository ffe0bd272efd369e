"""Locks per claim and per GPU, held against the threads of this process and against another instance.

During a rolling update two instances share the data folder. Threads wait for each other on a plain
lock; processes wait on an open file description lock (fcntl(2), F_OFD_SETLK) over one byte of a
common file, which the kernel lets go when the holder dies. fcntl(2) waits for ever or not at all, so
a process that finds the byte taken asks again, at growing intervals, until its time is over.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from driver.errors import ClaimBlocked, StorageError

_FIRST_DELAY_SECONDS = 0.002
_LONGEST_DELAY_SECONDS = 0.05

_FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux: type, whence, start, length, pid

_LIVES, _STARTS = 0, 1
"""The byte that each instance holds as long as it lives, together with the others, and that of its start."""

_AGAIN_SECONDS = 0.02


def one_byte(kind: int, offset: int) -> bytes:
    """What fcntl(2) is told: a lock of this kind (F_RDLCK, F_WRLCK, F_UNLCK) over the byte at ``offset``."""
    return _FLOCK.pack(kind, os.SEEK_SET, offset, 1, 0)


def stands_in_the_way(answer: bytes) -> bool:
    """Whether F_OFD_GETLK answered that somebody else holds what was asked for."""
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def claim_key(uid: str) -> str:
    """The key of a claim."""
    return f"claim {uid}"


def gpu_key(pci: str) -> str:
    """The key of a physical GPU; ``pci`` as sysfs writes it."""
    return f"GPU {pci}"


def _nobody(_seconds: float) -> None:
    """Nobody hears of waits."""


class KeyedLocks:
    """Mutual exclusion per key; a call takes all its keys at once, in the order given.

    Callers agree on an order (claims before GPUs, GPUs sorted), so that no two wait for each other.
    """

    def __init__(self, file: Path, waited: Callable[[float], None] = _nobody) -> None:
        """``waited`` hears how many seconds each call waited for its keys."""
        self._file = file
        self._waited = waited
        self._guard = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def holding(self, keys: Sequence[str], timeout_seconds: float) -> Iterator[None]:
        """Hold every key while the block runs.

        Raises ClaimBlocked when another thread, or another instance, did not let go within
        ``timeout_seconds``, which are for all keys together.
        """
        started = time.monotonic()
        deadline = started + timeout_seconds
        taken: list[str] = []
        try:
            for key in keys:
                self._take(key, deadline, timeout_seconds)
                taken.append(key)
            descriptor = self._open()
            try:
                for key in keys:
                    self._take_from_others(descriptor, key, deadline, timeout_seconds)
                self._waited(time.monotonic() - started)
                yield
            finally:
                os.close(descriptor)
        finally:
            for key in reversed(taken):
                self._let_go(key)

    def _open(self) -> int:
        try:
            return os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(
                f"the lock file {self._file} cannot be used: {error.strerror}",
                f"make {self._file.parent} writable",
            ) from error

    def _take(self, key: str, deadline: float, timeout_seconds: float) -> None:
        """Take a key against the other threads; raises ClaimBlocked."""
        with self._guard:
            lock, users = self._locks.get(key, (threading.Lock(), 0))
            self._locks[key] = (lock, users + 1)
        if not lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            self._forget(key)
            raise ClaimBlocked(
                f"{key} is still being worked on after {timeout_seconds:.0f} s",
                "it is retried; if it lasts, look for a hung call in the plugin's log",
            )

    def _take_from_others(self, descriptor: int, key: str, deadline: float, timeout_seconds: float) -> None:
        """Take a key against the other instances; raises ClaimBlocked, StorageError."""
        delay_seconds = _FIRST_DELAY_SECONDS
        while not self._is_taken(descriptor, key):
            left_seconds = deadline - time.monotonic()
            if left_seconds <= 0:
                raise ClaimBlocked(
                    f"another instance of the plugin still works on {key} after {timeout_seconds:.0f} s",
                    "it is retried; if it lasts, look for a plugin on this node that hangs, and end it",
                )
            threading.Event().wait(min(delay_seconds, left_seconds))
            delay_seconds = min(2 * delay_seconds, _LONGEST_DELAY_SECONDS)

    def _is_taken(self, descriptor: int, key: str) -> bool:
        """Whether the key is ours now; raises StorageError."""
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, one_byte(fcntl.F_WRLCK, _offset(key)))
        except (BlockingIOError, PermissionError):
            return False
        except OSError as error:
            raise StorageError(
                f"the lock file {self._file} cannot be locked: {error.strerror}", "check the disk"
            ) from error
        return True

    def _let_go(self, key: str) -> None:
        self._forget(key).release()

    def _forget(self, key: str) -> threading.Lock:
        """One thread less has to do with the key, whose lock is returned."""
        with self._guard:
            lock, users = self._locks.pop(key)
            if users > 1:
                self._locks[key] = (lock, users - 1)
        return lock


def _offset(key: str) -> int:
    """The byte of the common file that stands for a key."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 2


class Peers:
    """Knows of the other instances of the plugin that share the data folder, as two do in a rolling update.

    It tells whether another instance may have changed the folder.

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
