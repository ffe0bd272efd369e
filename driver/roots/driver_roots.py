"""The current driver root: the one from the flag, or the first place that has a driver."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock

from driver.errors import NodeIncomplete
from driver.process.log import get_logger
from driver.roots.places import PLACES
from driver.roots.probe import Probe, ProbedPlace, probe, prove
from driver.roots.root import Root

Proof = tuple[int, ...]
"""Device and inode of the root's folder and of its library, and the library's time of change."""

_log = get_logger(__name__)


class NoDriverRoot(NodeIncomplete):
    """No place has a usable NVIDIA driver."""

    def __init__(self, looked: tuple[ProbedPlace, ...]) -> None:
        reasons = "; ".join(f"{one.path}: {one.reason}" for one in looked)
        super().__init__(
            f"no NVIDIA driver was found on this node ({reasons})",
            "install the driver, which needs no restart, or set --driver-root to where it is",
        )


class DriverRoots:
    """Gives the same driver root to all code that reads files of the driver. Thread-safe."""

    def __init__(self, given: Root | None, host_root: Path, sysfs_root: Path) -> None:
        self._given = given
        self._host_root = host_root
        self._sysfs_root = sysfs_root
        self._lock = Lock()
        self._found = Probe(())
        self._proof: Proof | None = None

    @classmethod
    def fixed(cls, seen: Path, on_host: Path | None = None) -> DriverRoots:
        """The root from a flag; it is used whether a driver is there or not."""
        return cls(Root.given(seen, on_host), seen, seen)

    @classmethod
    def probed(cls, host_root: Path, sysfs_root: Path) -> DriverRoots:
        """The first of the known places with a driver, below the host's root as this process sees it."""
        return cls(None, host_root, sysfs_root)

    @property
    def host_root(self) -> Path | None:
        """The folder at which this process sees the host's root; None if the driver root is from a flag."""
        return None if self._given is not None else self._host_root

    def current(self) -> Root:
        """The root to use now; raises NoDriverRoot if no place has a driver."""
        if self._given is not None:
            return self._given
        with self._lock:
            # Every prepare comes here. Two stat calls replace a look at all places, unless something has
            # changed.
            if self._proof is None or _proof(self._found) != self._proof:
                self._look()
            if self._found.root is None:
                raise NoDriverRoot(self._found.looked)
            return self._found.root

    def look(self) -> tuple[ProbedPlace, ...]:
        """Look at all places now; return which one is used, and why each of the others is not."""
        if self._given is not None:
            return (prove(self._given)[0],)
        with self._lock:
            self._look()
            return self._found.looked

    def state(self) -> tuple[Root | None, Proof | None]:
        """What identifies the driver that was found last. It changes if that driver is replaced."""
        with self._lock:
            return self._found.root, self._proof

    def _look(self) -> None:
        """Look at all places; the lock is held."""
        found = probe(PLACES, self._host_root, self._sysfs_root)
        # Log changes only, since the places may be probed every second.
        if found.looked != self._found.looked:
            _log.info(
                "driver root",
                used=None if found.root is None else str(found.root.on_host),
                passed_over={f"{one.path}": one.reason for one in found.looked if one.reason},
                version=next((one.version for one in found.looked if not one.reason), None),
            )
        self._found, self._proof = found, _proof(found)


def _proof(found: Probe) -> Proof | None:
    """The proof that a root is still the same; None if a part of it is gone."""
    if found.root is None or found.library is None:
        return None
    try:
        # os.stat and not Path.stat, which is slower: every prepare comes here.
        folder, library = (os.stat(path) for path in (found.root.seen, found.library))  # noqa: PTH116
    except OSError:
        return None
    # Inodes are used again. The time tells a new file from the old one with the same inode.
    return folder.st_dev, folder.st_ino, library.st_dev, library.st_ino, library.st_mtime_ns
