"""Locks per claim and per GPU, held against the threads of this process and against another instance.

During a rolling update two instances share the data folder. Threads wait for each other on a plain lock.
Processes wait on an open file description lock (fcntl(2), F_OFD_SETLK) over one byte of a common file.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from driver.errors import ClaimBlocked, StorageError

_FIRST_DELAY_SECONDS = 0.002
_LONGEST_DELAY_SECONDS = 0.05

# struct flock on 64-bit Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")

# Bytes of the file of ``Peers``. All living instances hold the first one together, by a read lock. An
# instance holds the second one alone while it starts.
_LIVES, _STARTS = 0, 1

_AGAIN_SECONDS = 0.02

_CLAIM = "claim "


def _one_byte(kind: int, offset: int) -> bytes:
    """A struct flock: a lock of this kind (F_RDLCK, F_WRLCK, F_UNLCK) over the byte at ``offset``."""
    # The kernel wants pid 0 for locks of open file descriptions. Locks may lie beyond the end of the file.
    return _FLOCK.pack(kind, os.SEEK_SET, offset, 1, 0)


def claim_key(uid: str) -> str:
    """The key of a claim."""
    return f"{_CLAIM}{uid}"


def gpu_key(pci: str) -> str:
    """The key of a physical GPU; ``pci`` as sysfs writes it."""
    return f"GPU {pci}"


def _place_in_order(key: str) -> tuple[bool, str]:
    return not key.startswith(_CLAIM), key


class KeyedLocks:
    """Mutual exclusion per key. Whatever order a call names its keys in, it takes them in one order.

    So no two calls wait for each other: claims come before GPUs, and both are sorted. A call that has a claim
    may take its GPUs in a second step; nobody who has a GPU takes another one, or a claim.
    """

    def __init__(self, file: Path, waited: Callable[[float], None] = lambda _seconds: None) -> None:
        """``waited(seconds)`` gets how long each call waited for its keys."""
        self._file = file
        self._waited = waited
        self._guard = threading.Lock()
        # The lock of each key in use, and how many threads have or want it. Without users it is dropped:
        # there are keys for every claim of the node's life.
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def holding(self, keys: Iterable[str], timeout_seconds: float) -> Iterator[None]:
        """Hold every key while the block runs.

        Raises ClaimBlocked if another thread or another instance holds one of them longer than
        ``timeout_seconds``, which are for all keys together, and StorageError if the file cannot be locked.
        """
        started = time.monotonic()
        deadline = started + timeout_seconds
        taken: list[str] = []
        in_order = sorted(keys, key=_place_in_order)
        try:
            for key in in_order:
                self._take(key, deadline, timeout_seconds)
                taken.append(key)
            # A descriptor of its own for each call: the locks belong to the open file description, so the
            # kernel releases all of them when it is closed, also when the process dies.
            descriptor = self._open()
            try:
                for key in in_order:
                    self._take_from_others(descriptor, key, deadline, timeout_seconds)
                self._waited(time.monotonic() - started)
                yield
            finally:
                os.close(descriptor)
        finally:
            for key in reversed(taken):
                self._drop(key).release()

    def _open(self) -> int:
        try:
            return os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(
                f"cannot use the lock file {self._file}: {error.strerror}",
                f"make {self._file.parent} writable",
            ) from error

    def _take(self, key: str, deadline: float, timeout_seconds: float) -> None:
        """Take a key from the other threads of this process. Raises ClaimBlocked."""
        with self._guard:
            lock, users = self._locks.get(key, (threading.Lock(), 0))
            self._locks[key] = (lock, users + 1)
        if not lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            self._drop(key)
            raise ClaimBlocked(
                f"{key} is still being worked on after {timeout_seconds:.0f} s",
                "it is tried again; if this lasts, look for a hung call in the plugin's log",
            )

    def _take_from_others(self, descriptor: int, key: str, deadline: float, timeout_seconds: float) -> None:
        """Take a key from the other instances. Raises ClaimBlocked, StorageError."""
        # F_OFD_SETLKW would wait without a timeout, so this asks again, at growing intervals.
        delay_seconds = _FIRST_DELAY_SECONDS
        while not self._is_taken(descriptor, key):
            left_seconds = deadline - time.monotonic()
            if left_seconds <= 0:
                raise ClaimBlocked(
                    f"another instance of the plugin still works on {key} after {timeout_seconds:.0f} s",
                    "it is tried again; if this lasts, look for a plugin on this node that hangs, and end it",
                )
            threading.Event().wait(min(delay_seconds, left_seconds))
            delay_seconds = min(2 * delay_seconds, _LONGEST_DELAY_SECONDS)

    def _is_taken(self, descriptor: int, key: str) -> bool:
        """Whether the key is ours now. Raises StorageError."""
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _one_byte(fcntl.F_WRLCK, _offset(key)))
        # fcntl(2) fails with EAGAIN or EACCES if somebody else has the byte; POSIX allows both.
        except (BlockingIOError, PermissionError):
            return False
        except OSError as error:
            raise StorageError(
                f"cannot lock the file {self._file}: {error.strerror}", "check the disk"
            ) from error
        return True

    def _drop(self, key: str) -> threading.Lock:
        """Count one user of the key less, and return its lock."""
        with self._guard:
            lock, users = self._locks.pop(key)
            if users > 1:
                self._locks[key] = (lock, users - 1)
        return lock


@lru_cache(maxsize=1024)
def _offset(key: str) -> int:
    """The byte of the common file that is locked for a key."""
    # 62 bits of a hash: l_start is a signed 64-bit number, and the end of the locked range must not overflow
    # it.
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 2


class Peers:
    """Detects other instances of the plugin that share the data folder, as two do during a rolling update.

    Each instance sets the time of a common file when it starts, and holds a read lock on it as long as it
    lives. If the time has not changed and nobody else holds the lock, nobody else has written.
    """

    def __init__(self, file: Path) -> None:
        """Raises StorageError if the file cannot be made or locked."""
        self._file = file
        try:
            # Kept open: closing it would release the lock.
            self._descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _one_byte(fcntl.F_RDLCK, _LIVES))
            # A time and not content, since even a full disk takes it. First the lock: whoever sees the old
            # time has to see the lock.
            now_ns = time.time_ns()
            os.utime(self._descriptor, ns=(now_ns, now_ns))
        except OSError as error:
            raise StorageError(
                f"cannot use the file {file}: {error.strerror}", f"make {file.parent} writable"
            ) from error

    def watch(self) -> Callable[[], bool]:
        """A function that returns whether another instance may have written since its last call.

        The first answer is yes. Each reader needs a function of its own, and calls it from one thread at a
        time. A reader that then fails to read has to remember that it must, since the next answer may be no.
        """
        # The file's time at the last call, and whether another instance lived then.
        seen = -1, True

        def may_have_written() -> bool:
            nonlocal seen
            before, changed_ns = seen, os.fstat(self._descriptor).st_mtime_ns
            # Whoever has come since then has not set the time yet, and so has not written anything either.
            if before == (changed_ns, False):
                return False
            seen = changed_ns, not self.alone()
            # An instance that lived at the last call may have written after it, and ended since.
            return seen != before or seen[1]

        return may_have_written

    def alone(self) -> bool:
        """Whether no other instance lives."""
        # F_OFD_GETLK takes no lock. It returns a lock of somebody else that conflicts, or F_UNLCK for none.
        answer = fcntl.fcntl(self._descriptor, fcntl.F_OFD_GETLK, _one_byte(fcntl.F_WRLCK, _LIVES))
        return bool(_FLOCK.unpack(answer)[0] == fcntl.F_UNLCK)

    @contextmanager
    def starting(self, timeout_seconds: float) -> Iterator[None]:
        """Let one instance at a time run the block, which is a part of its start.

        Raises StorageError if another one takes longer than ``timeout_seconds`` for it.
        """
        deadline = time.monotonic() + timeout_seconds
        while not self._begin_start():
            if time.monotonic() > deadline:
                raise StorageError(
                    f"another instance holds {self._file} and has not started within {timeout_seconds:.0f} s",
                    "look for a plugin on this node that hangs, and end it",
                )
            threading.Event().wait(_AGAIN_SECONDS)
        try:
            yield
        finally:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _one_byte(fcntl.F_UNLCK, _STARTS))

    def _begin_start(self) -> bool:
        """Whether no other instance is starting; raises StorageError."""
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _one_byte(fcntl.F_WRLCK, _STARTS))
        except (BlockingIOError, PermissionError):
            return False
        except OSError as error:
            raise StorageError(
                f"cannot lock the file {self._file}: {error.strerror}", "check the disk"
            ) from error
        return True

    def close(self) -> None:
        """Release the lock, so that the others see that this instance is gone."""
        os.close(self._descriptor)
