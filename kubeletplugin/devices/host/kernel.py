"""The calls of the kernel that may block: writes into sysfs, loading modules, and reading certain files.

Other files of sysfs are read directly. The kernel hands out some only under the lock of the PCI function, so
a reader waits, and cannot be killed, until a driver has let the function go. The pretend kernel of
``fakegpu.sysfs`` answers the same calls for a pretend node.
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
from typing import Protocol

from kubeletplugin.devices.host import kernel_child


class Kernel(Protocol):
    """The kernel of the node."""

    def write(self, path: Path, text: str, deadline_seconds: float) -> None:
        """Write to a file of sysfs, such as ``<sysfs root>/bus/pci/drivers/nvidia/unbind``, in one call.

        The kernel may take any time, so a child process writes. Raises OSError with the kernel's own number
        (EBUSY, ENODEV, EINVAL, ENOENT), and TimeoutError if the write has not returned in time. It is still
        under way then and may yet succeed.
        """
        ...

    def read(self, path: Path, deadline_seconds: float) -> str:
        """The text of a file of sysfs that the kernel hands out under the lock of its PCI function.

        These are ``driver_override`` and ``sriov_numvfs``. Raises OSError, and TimeoutError while the kernel
        is still taking a driver from the function.
        """
        ...

    def load_module(self, name: str, deadline_seconds: float) -> None:
        """Load a kernel module such as ``vfio-pci``, unless it is loaded already.

        Raises OSError if there is no such module or it cannot be loaded, and TimeoutError.
        """
        ...


MOST_STUCK = 8
"""At most this many calls may run past their deadline; until one of them has ended, no other is started."""

MOST_READ_BYTES = 8192
"""Files of sysfs have a page at most."""

_PIPE_BYTES = 64 * 1024
_NO_SUCH_MODULE = "not found"


class RealKernel:
    """``Kernel`` below the real sysfs. ``host_root`` is where this process sees the host's root folder.

    A child process makes each call, since the kernel may take any time. A child that waits in the kernel for
    a driver cannot be killed, and killing it would not undo the change. It is left to end when it can; later
    calls notice that it has ended.
    """

    def __init__(self, host_root: Path = Path("/"), sysfs_root: Path = Path("/sys")) -> None:
        self._host_root = host_root
        self._sysfs_root = sysfs_root
        self._calls = _Calls()

    def write(self, path: Path, text: str, deadline_seconds: float) -> None:
        """See ``Kernel``. If the same write is still under way, this waits for it and starts no other."""
        self._calls.make(("write", str(path), text), deadline_seconds)

    def read(self, path: Path, deadline_seconds: float) -> str:
        """See ``Kernel``."""
        return self._calls.make(("read", str(path), str(MOST_READ_BYTES)), deadline_seconds)

    def load_module(self, name: str, deadline_seconds: float) -> None:
        """See ``Kernel``. The host's modprobe does it, with the host's module files and settings."""
        # The kernel shows modules with underscores, also those whose file has dashes in its name.
        if (self._sysfs_root / "module" / name.replace("-", "_")).exists():
            return
        self._calls.make(("module", str(self._host_root), name), deadline_seconds)


class _Calls:
    """The calls that are under way. Several threads that make the same call share one child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[tuple[str, ...], _Call] = {}

    def make(self, arguments: tuple[str, ...], deadline_seconds: float) -> str:
        """The answer of the call; raises OSError, TimeoutError."""
        deadline = time.monotonic() + deadline_seconds
        with self._lock:
            call = self._under_way.get(arguments)
            # A call that has ended is not shared any more: its answer is older than this question.
            if call is None or call.has_ended(0.0):
                self._refuse_more()
                call = self._under_way[arguments] = _Call(arguments)
        if not call.has_ended(deadline - time.monotonic()):
            # It stays in the table: the same call made again waits for this child.
            call.is_late = True
            raise TimeoutError(errno.ETIMEDOUT, f"the kernel has not answered in {deadline_seconds:g} s")
        with self._lock:
            # Another thread may have started a newer call under the same key.
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
                f"{late} calls wait in the kernel for drivers that do not release a device, so no other "
                "call is made",
            )


class _Call:
    """One call, and the child that makes it. Any number of threads may wait for it."""

    def __init__(self, arguments: Sequence[str]) -> None:
        """Raises OSError if no process can be started."""
        self.is_late = False
        self._lock = threading.Lock()
        self._output: bytes | None = None
        # Popen closes all other descriptors in the child. So a stuck child does not keep locks on files that
        # this process took. Its working directory is "/", so that it keeps no mount busy either, and in a
        # session of its own it gets no signals that are sent to the plugin's process group.
        self._process = subprocess.Popen(
            # -I -S leave out the environment and site-packages, which makes the start quicker.
            [sys.executable, "-I", "-S", kernel_child.__file__, str(os.getpid()), *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            cwd="/", start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        self._pipe = self._process.stdout

    def has_ended(self, seconds: float) -> bool:
        """Whether it ends within that time."""
        with self._lock:
            if self._output is not None:
                return True
            # A copy of the descriptor: another thread may close the pipe meanwhile.
            pipe = os.dup(self._pipe.fileno())
        try:
            poll = select.poll()
            # No events are asked for, since poll always reports POLLHUP, the end of the child. The output
            # can wait in the pipe until then: it is far shorter than a pipe holds.
            poll.register(pipe, 0)
            return bool(poll.poll(max(0.0, seconds) * 1000))
        finally:
            os.close(pipe)

    def reap(self) -> bytes:
        """Its output, once it has ended."""
        with self._lock:
            if self._output is None:
                self._output = self._pipe.read(_PIPE_BYTES) or b""
                self._pipe.close()
                self._process.wait()
            return self._output

    def result(self) -> str:
        """What was read or printed; raises OSError with the kernel's number."""
        words, _, number = self.reap().decode(errors="replace").rpartition("\n")
        if not number.isdecimal():
            raise OSError(errno.EIO, "the process that talks to the kernel ended too early")
        code = int(number)
        # modprobe has one exit code for every failure; only its message says that the module is missing.
        if code == errno.EIO and _NO_SUCH_MODULE in words:
            code = errno.ENOENT
        if code:
            raise OSError(code, words.strip() or os.strerror(code))
        return words
