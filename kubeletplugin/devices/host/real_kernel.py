"""The kernel of this node: each call is made by a child, since the kernel may act for as long as it likes.

A child that waits in the kernel for a driver to let go cannot be killed, and killing would not call the
change off: it is left to end when it can, and its end is looked for by the next calls. It has nothing open
of this process, so that what this one locks is let go of when it ends.
"""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from kubeletplugin.devices.host import kernel_child

MOST_STUCK = 8
"""So many calls may be under way past their deadline; until one of them has ended, no other is begun."""

MOST_READ_BYTES = 8192
"""Files of sysfs have a page at most."""

_READ_BYTES = 64 * 1024
_NO_SUCH_MODULE = "not found"


class RealKernel:
    """``Kernel`` below the real sysfs. ``host_root`` is where this process sees the host's root folder."""

    def __init__(self, host_root: Path = Path("/"), sysfs_root: Path = Path("/sys")) -> None:
        self._host_root = host_root
        self._sysfs_root = sysfs_root
        self._calls = _Calls()

    def write(self, path: Path, text: str, deadline_seconds: float) -> None:
        """See ``Kernel``. The same write that is still under way is waited for, and not begun again."""
        self._calls.make(("write", str(path), text), deadline_seconds)

    def read(self, path: Path, deadline_seconds: float) -> str:
        """See ``Kernel``."""
        return self._calls.make(("read", str(path), str(MOST_READ_BYTES)), deadline_seconds)

    def load_module(self, name: str, deadline_seconds: float) -> None:
        """See ``Kernel``. The host's modprobe does it, with the host's module files and settings."""
        if (self._sysfs_root / "module" / name.replace("-", "_")).exists():
            return
        self._calls.make(("module", str(self._host_root), name), deadline_seconds)


class _Calls:
    """The calls that are under way, each once however often it is asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[tuple[str, ...], _Call] = {}

    def make(self, arguments: tuple[str, ...], deadline_seconds: float) -> str:
        """What the call answers; raises OSError, TimeoutError."""
        deadline = time.monotonic() + deadline_seconds
        with self._lock:
            call = self._under_way.get(arguments)
            if call is None or call.has_ended(0.0):
                self._refuse_more()
                call = self._under_way[arguments] = _Call(arguments)
        if not call.has_ended(deadline - time.monotonic()):
            call.is_late = True
            raise TimeoutError(errno.ETIMEDOUT, f"the kernel has not answered in {deadline_seconds:g} s")
        with self._lock:
            if self._under_way.get(arguments) is call:
                del self._under_way[arguments]
        return call.result()

    def _refuse_more(self) -> None:
        ended = [key for key, call in self._under_way.items() if call.is_late and call.has_ended(0.0)]
        for key in ended:
            self._under_way.pop(key).reap()
        late = sum(call.is_late for call in self._under_way.values())
        if late >= MOST_STUCK:
            raise OSError(
                errno.EAGAIN,
                f"{late} calls wait in the kernel for drivers that do not let go, so no other is made",
            )


class _Call:
    """One call, and the child that makes it. Any number of threads may wait for it."""

    def __init__(self, arguments: Sequence[str]) -> None:
        """Raises OSError where no process can be started."""
        self.is_late = False
        self._lock = threading.Lock()
        self._said: bytes | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", kernel_child.__file__, str(os.getpid()), *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            cwd="/", start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        self._pipe = self._process.stdout

    def has_ended(self, seconds: float) -> bool:
        """Whether it ends within that time. Nothing is read: what is said is far less than a pipe holds."""
        with self._lock:
            if self._said is not None:
                return True
            pipe = os.dup(self._pipe.fileno())  # another thread may close it meanwhile
        try:
            poll = select.poll()
            poll.register(pipe, 0)  # only its end, which poll tells without being asked
            return bool(poll.poll(max(0.0, seconds) * 1000))
        finally:
            os.close(pipe)

    def reap(self) -> bytes:
        """What it said, once it has ended."""
        with self._lock:
            if self._said is None:
                self._said = self._pipe.read(_READ_BYTES) or b""
                self._pipe.close()
                self._process.wait()
            return self._said

    def result(self) -> str:
        """What was read, or said; raises OSError with the number that the kernel gave."""
        words, _, number = self.reap().decode(errors="replace").rpartition("\n")
        if not number.isdecimal():
            raise OSError(errno.EIO, "the process that talks to the kernel ended early")
        code = int(number)
        if code == errno.EIO and _NO_SUCH_MODULE in words:
            code = errno.ENOENT
        if code:
            raise OSError(code, words.strip() or os.strerror(code))
        return words
