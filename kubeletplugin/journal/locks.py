"""Locks per claim and per GPU, held against the threads of this process and against another instance.

During a rolling update two instances share the data folder. Threads wait for each other on a plain
lock; processes wait on an open file description lock (fcntl(2), F_OFD_SETLKW) over one byte of a
common file, which the kernel lets go when the holder dies. Nobody polls.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from driver.errors import ClaimBlocked, StorageError

_FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux: type, whence, start, length, pid


def _range(kind: int, offset: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, offset, 1, 0)


def claim_key(uid: str) -> str:
    """The key of a claim."""
    return f"claim {uid}"


def gpu_key(pci: str) -> str:
    """The key of a physical GPU; ``pci`` as sysfs writes it."""
    return f"GPU {pci}"


class KeyedLocks:
    """Mutual exclusion per key; a call takes all its keys at once, in the order given.

    Callers agree on an order (claims before GPUs, GPUs sorted), so that no two wait for each other.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._guard = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def holding(self, keys: Sequence[str], timeout_seconds: float) -> Iterator[None]:
        """Hold every key while the block runs.

        Raises ClaimBlocked when another thread did not let go within ``timeout_seconds``.
        """
        with ExitStack() as stack:
            for key in keys:
                stack.enter_context(self._in_process(key, timeout_seconds))
            descriptor = self._open()
            stack.callback(os.close, descriptor)
            for key in keys:
                digest = hashlib.sha256(key.encode()).digest()
                offset = int.from_bytes(digest[:8], "big") >> 2
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, _range(fcntl.F_WRLCK, offset))
            yield

    def _open(self) -> int:
        try:
            return os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(
                f"the lock file {self._file} cannot be used: {error.strerror}",
                f"make {self._file.parent} writable",
            ) from error

    @contextmanager
    def _in_process(self, key: str, timeout_seconds: float) -> Iterator[None]:
        with self._guard:
            lock, users = self._locks.get(key, (threading.Lock(), 0))
            self._locks[key] = (lock, users + 1)
        try:
            if not lock.acquire(timeout=timeout_seconds):
                raise ClaimBlocked(
                    f"{key} is still being worked on after {timeout_seconds:.0f} s",
                    "it is retried; if it lasts, look for a hung call in the plugin's log",
                )
            try:
                yield
            finally:
                lock.release()
        finally:
            with self._guard:
                lock, users = self._locks.pop(key)
                if users > 1:
                    self._locks[key] = (lock, users - 1)


class Peers:
    """Knows whether another instance of the plugin may have changed the shared data folder.

    Each instance sets the time of a common file when it starts, which also a full disk lets it do, and
    holds a shared lock on it as long as it lives: so a look at the time and at the lock, two system
    calls, tells a lone instance that all it remembers is still true.
    """

    def __init__(self, file: Path) -> None:
        """Raises StorageError when the file cannot be made or locked."""
        try:
            self._descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _range(fcntl.F_RDLCK, 0))
            now_ns = time.time_ns()
            os.utime(self._descriptor, ns=(now_ns, now_ns))
        except OSError as error:
            raise StorageError(
                f"the file {file} cannot be used: {error.strerror}", f"make {file.parent} writable"
            ) from error
        self._seen_ns = -1
        self._shared = True

    def may_have_written(self) -> bool:
        """Whether anybody but this instance could have written since the last time this was asked."""
        touched_ns = os.fstat(self._descriptor).st_mtime_ns
        probe = fcntl.fcntl(self._descriptor, fcntl.F_OFD_GETLK, _range(fcntl.F_WRLCK, 0))
        shared = _FLOCK.unpack(probe)[0] != fcntl.F_UNLCK
        changed = shared or self._shared or touched_ns != self._seen_ns
        self._seen_ns, self._shared = touched_ns, shared
        return changed

    def close(self) -> None:
        """Let the others know that this instance is gone."""
        os.close(self._descriptor)
