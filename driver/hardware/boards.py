"""Remembers which board is at each PCI address, for as long as the kernel shows that it is the same one."""

from __future__ import annotations

import os
from pathlib import Path

from driver.hardware.inventory import Discovery, GpuIdentity
from driver.nvml.pci_address import PciAddress

_Stamp = tuple[int, int]


class Boards:
    """UUID and minor of each GPU, read from NVML once for each time that a kernel driver is bound to it.

    May be called from several threads at once.
    """

    def __init__(self, discovery: Discovery, sysfs_root: Path) -> None:
        self._discovery = discovery
        self._folder = f"{sysfs_root}/bus/pci/devices"
        self._known: dict[PciAddress, tuple[_Stamp, GpuIdentity]] = {}

    def identity(self, pci: PciAddress) -> GpuIdentity:
        """The board at an address; raises NvmlError, NotFound if there is none."""
        # Before NVML is asked, so that a board that is exchanged in between is read again.
        stamp = self._stamp(pci)
        known = self._known.get(pci)
        if known is not None and known[0] == stamp:
            return known[1]
        found = self._discovery.identity(pci)
        # Without a driver there is no link that would show a change, so nothing is remembered.
        if stamp is not None:
            self._known[pci] = stamp, found
        return found

    def _stamp(self, pci: PciAddress) -> _Stamp | None:
        """What identifies this binding of a driver; None without a driver."""
        try:
            # The kernel makes the link ``driver`` when a driver is bound to the function and removes it when
            # the driver lets go. So an exchanged board, a GPU that was removed and found again, and a driver
            # that was loaded again each have a new link with a new inode. The time is there since inodes may
            # be used again.
            status = os.lstat(f"{self._folder}/{pci}/driver")
        except OSError:
            return None
        return status.st_ino, status.st_ctime_ns
