"""Which PCI functions of a fake machine are held open: a kernel driver releases none of those.

A hold ends with the object or process that has it. Holds on names show whether who has them still lives.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import Protocol

from driver.nvml.pci_address import PciAddress


class Hold(Protocol):
    """One function that is held open, until ``release`` or until the object is deleted."""

    def release(self) -> None:
        """Close the function; a second call does nothing."""
        ...


class Holds(Protocol):
    """The holds on one machine."""

    def hold(self, what: PciAddress | str) -> Hold:
        """Hold a function open, or a name."""
        ...

    def is_held(self, what: PciAddress | str) -> bool:
        """Whether any process holds a function or a name, this one included."""
        ...

    def forget(self, name: str) -> None:
        """Remove what is left of a name that nobody will hold again."""
        ...


class MemoryHolds:
    """The holds on a machine that lives in this process alone."""

    def __init__(self) -> None:
        self._counts: Counter[PciAddress | str] = Counter()
        self._lock = Lock()

    def hold(self, what: PciAddress | str) -> Hold:
        """Hold a function open, or a name."""
        self.count(what, 1)
        return _Counted(self, what)

    def is_held(self, what: PciAddress | str) -> bool:
        """Whether a function or a name is held."""
        return self._counts[what] > 0

    def forget(self, name: str) -> None:
        """Remove what is left of a name."""
        with self._lock:
            del self._counts[name]

    def count(self, what: PciAddress | str, more: int) -> None:
        """Count one hold more, or one less."""
        with self._lock:
            self._counts[what] += more


class _Counted:
    def __init__(self, holds: MemoryHolds, what: PciAddress | str) -> None:
        self._holds: MemoryHolds | None = holds
        self._what = what

    def release(self) -> None:
        holds, self._holds = self._holds, None
        if holds is not None:
            holds.count(self._what, -1)

    def __del__(self) -> None:
        self.release()


class FileHolds:
    """The holds on a machine that processes share: file locks, one file for each function and name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def hold(self, what: PciAddress | str) -> Hold:
        """Hold a function open, or a name; raises OSError where the process may open no more files."""
        self._folder.mkdir(exist_ok=True)
        descriptor = os.open(self._folder / str(what), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        # Shared, so that several processes can hold one function. The kernel releases the lock with the last
        # copy of the descriptor: a process that is killed holds nothing.
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return _Locked(descriptor)

    def is_held(self, what: PciAddress | str) -> bool:
        """Whether any process holds a function or a name."""
        try:
            descriptor = os.open(self._folder / str(what), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # An exclusive lock is refused while anybody has a shared one. Locks belong to the open file, not
            # to the process, so a hold of this process counts too.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def forget(self, name: str) -> None:
        """Remove the file of a name."""
        (self._folder / name).unlink(missing_ok=True)


class _Locked:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.release()


class GpuHold:
    """A GPU that is held open through its device nodes below the device roots, as NVML holds it.

    A search through /proc for the processes that have a node open finds this process.
    """

    def __init__(self, hold: Hold, device_roots: Iterable[str], minor: int) -> None:
        self._hold = hold
        self._descriptors: list[int] = []
        for root in device_roots:
            node = Path(root, "dev", f"nvidia{minor}")
            if not node.is_symlink() and node.is_char_device():
                try:
                    self._descriptors.append(os.open(node, os.O_RDWR | os.O_CLOEXEC))
                except OSError as error:
                    # A file system that is mounted nodev, or a node of a kernel driver that is not there.
                    if error.errno not in {errno.EACCES, errno.ENXIO}:
                        raise

    def release(self) -> None:
        """Close the GPU; a second call does nothing."""
        self._hold.release()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()

    def __del__(self) -> None:
        self.release()
