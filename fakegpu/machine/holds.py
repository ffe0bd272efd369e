"""Which functions of a fake machine are open: a driver releases none that is held.

A hold ends with its holder, which is an object or a process.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Protocol

from driver.nvml.pci_address import PciAddress


class Hold(Protocol):
    """One function held open; it is let go of by ``release``, and when the object goes."""

    def release(self) -> None:
        """Let go; once more does nothing."""
        ...


class Holds(Protocol):
    """The holds on one machine."""

    def hold(self, pci: PciAddress) -> Hold:
        """Hold a function open."""
        ...

    def is_held(self, pci: PciAddress) -> bool:
        """Whether anybody holds a function open, this process included."""
        ...


class MemoryHolds:
    """The holds on a machine that lives in this process alone."""

    def __init__(self) -> None:
        self._counts: Counter[PciAddress] = Counter()
        self._lock = Lock()

    def hold(self, pci: PciAddress) -> Hold:
        """Hold a function open."""
        self.count(pci, 1)
        return _Counted(self, pci)

    def is_held(self, pci: PciAddress) -> bool:
        """Whether anybody holds a function open."""
        return self._counts[pci] > 0

    def count(self, pci: PciAddress, more: int) -> None:
        """Count one hold more, or one less."""
        with self._lock:
            self._counts[pci] += more


class _Counted:
    def __init__(self, holds: MemoryHolds, pci: PciAddress) -> None:
        self._holds: MemoryHolds | None = holds
        self._pci = pci

    def release(self) -> None:
        holds, self._holds = self._holds, None
        if holds is not None:
            holds.count(self._pci, -1)

    def __del__(self) -> None:
        self.release()


class FileHolds:
    """The holds on a machine that processes share: locks on a file for each function.

    The kernel ends a lock with its process, so that one which is killed holds nothing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def hold(self, pci: PciAddress) -> Hold:
        """Hold a function open; raises OSError where the process may open no more files."""
        self._folder.mkdir(exist_ok=True)
        descriptor = os.open(self._folder / str(pci), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return _Locked(descriptor)

    def is_held(self, pci: PciAddress) -> bool:
        """Whether any process holds a function open."""
        try:
            descriptor = os.open(self._folder / str(pci), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


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
    """A GPU held open through its device node: the node is open below each device root, where it is one.

    So a search through /proc for processes that have the node open finds this one.
    """

    def __init__(self, hold: Hold, device_roots: Iterable[str], minor: int) -> None:
        self._hold = hold
        self._descriptors: list[int] = []
        for root in device_roots:
            node = Path(root, "dev", f"nvidia{minor}")
            if not node.is_symlink() and node.is_char_device():
                with suppress(PermissionError):  # a file system on which no device can be opened
                    self._descriptors.append(os.open(node, os.O_RDWR | os.O_CLOEXEC))

    def release(self) -> None:
        """Let go; once more does nothing."""
        self._hold.release()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()

    def __del__(self) -> None:
        self.release()
