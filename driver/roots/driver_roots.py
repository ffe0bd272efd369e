"""The driver root that counts now: the one that was named, or the first place that has a driver."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock

from driver.errors import NodeIncomplete
from driver.process.log import get_logger
from driver.roots.places import PLACES
from driver.roots.probe import Looked, Probe, probe, prove
from driver.roots.root import Root

Proof = tuple[int, ...]
"""Device and inode of the root's folder and of its library, and when that was written."""

_log = get_logger(__name__)


class NoDriverRoot(NodeIncomplete):
    """No place has an NVIDIA driver that can work."""

    def __init__(self, looked: tuple[Looked, ...]) -> None:
        reasons = "; ".join(f"{one.path}: {one.reason}" for one in looked)
        super().__init__(
            f"no NVIDIA driver was found on this node ({reasons})",
            "install the driver, which is noticed by itself, or set --driver-root to where it is",
        )


class DriverRoots:
    """Gives the driver root to all that read files of the driver: they see the same one, or none.

    Safe to use from several threads.
    """

    def __init__(self, given: Root | None, host_root: Path, sysfs_root: Path) -> None:
        self._given = given
        self._host_root = host_root
        self._sysfs_root = sysfs_root
        self._lock = Lock()
        self._found = Probe(())
        self._proof: Proof | None = None

    @classmethod
    def fixed(cls, seen: Path, on_host: Path | None = None) -> DriverRoots:
        """The root that was named by a flag; it counts whether a driver is there or not."""
        return cls(Root.given(seen, on_host), seen, seen)

    @classmethod
    def probed(cls, host_root: Path, sysfs_root: Path) -> DriverRoots:
        """The first of the known places, below where this process sees the host's root."""
        return cls(None, host_root, sysfs_root)

    @property
    def host_root(self) -> Path | None:
        """Where this process sees the root of the host, None where it was not given."""
        return None if self._given is not None else self._host_root

    def current(self) -> Root:
        """The root that counts now; raises NoDriverRoot when no place has a driver.

        All places are looked at only when what proved the last one has changed, since every prepare asks.
        """
        if self._given is not None:
            return self._given
        with self._lock:
            if self._proof is None or _proof(self._found) != self._proof:
                self._look()
            if self._found.root is None:
                raise NoDriverRoot(self._found.looked)
            return self._found.root

    def look(self) -> tuple[Looked, ...]:
        """Look at all places now: which was used, and why each of the others is passed over."""
        if self._given is not None:
            return (prove(self._given)[0],)
        with self._lock:
            self._look()
            return self._found.looked

    def state(self) -> tuple[Root | None, Proof | None]:
        """What tells the driver that was found last from any other: it changes when that is replaced."""
        with self._lock:
            return self._found.root, self._proof

    def _look(self) -> None:
        """Look at all places; the lock is held."""
        found = probe(PLACES, self._host_root, self._sysfs_root)
        if found.looked != self._found.looked:
            _log.info(
                "driver root",
                used=None if found.root is None else str(found.root.on_host),
                passed_over={f"{one.path}": one.reason for one in found.looked if one.reason},
                version=next((one.version for one in found.looked if not one.reason), None),
            )
        self._found, self._proof = found, _proof(found)


def _proof(found: Probe) -> Proof | None:
    """The stamps of what proves a root, None where something of it is gone."""
    if found.root is None or found.library is None:
        return None
    try:
        # os.stat, since every prepare asks.
        folder, library = (os.stat(path) for path in (found.root.seen, found.library))  # noqa: PTH116
    except OSError:
        return None
    # An inode may be used again: the time tells the next file from the one that had it.
    return folder.st_dev, folder.st_ino, library.st_dev, library.st_ino, library.st_mtime_ns
