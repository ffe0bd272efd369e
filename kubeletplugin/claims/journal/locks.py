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
