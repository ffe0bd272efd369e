"""The NVIDIA driver where it is installed now: which root counts may change while this process runs."""

from __future__ import annotations

from pathlib import Path

from driver.roots.driver_roots import DriverRoots
from driver.roots.root import Root
from kubeletplugin.devices.host.driver_files import DriverRoot


class InstalledDriver:
    """Gives the root that counts, with its files. Safe to use from several threads."""

    def __init__(self, roots: DriverRoots) -> None:
        self._roots = roots
        self._last: tuple[Root, DriverRoot] | None = None

    @classmethod
    def below(cls, seen: Path, on_host: Path | None = None) -> InstalledDriver:
        """The driver below one root and no other."""
        return cls(DriverRoots.fixed(seen, on_host))

    @property
    def host_root(self) -> Path | None:
        """Where this process sees the root of the host, None where it was not told."""
        return self._roots.host_root

    def now(self) -> DriverRoot:
        """The root that counts now; the same object as before unless it is another root.

        Raises NodeIncomplete while no place has a driver.
        """
        root, last = self._roots.current(), self._last
        if last is not None and last[0] == root:
            return last[1]
        found = DriverRoot(root)
        self._last = root, found
        return found
