"""Remembers which board sits at each PCI address for as long as the kernel says that it is the same one."""

from __future__ import annotations

import os
from pathlib import Path

from driver.hardware.inventory import Discovery, GpuIdentity
from driver.nvml.pci_address import PciAddress

_Stamp = tuple[int, int]


class Boards:
    """UUID and minor of GPUs, asked of NVML once for each time that a kernel driver takes a board.

    sysfs has a link ``driver`` in the folder of a PCI function. The kernel makes it when a driver is bound to
    the function and removes it when the driver lets go, so an exchanged board, a GPU that was reset by
    removal, and a driver that was loaded again each have another link, with another inode. Where there is no
    link, nothing is remembered. May be called from several threads at once.
    """

    def __init__(self, discovery: Discovery, sysfs_root: Path) -> None:
        self._discovery = discovery
        self._folder = f"{sysfs_root}/bus/pci/devices"
        self._known: dict[PciAddress, tuple[_Stamp, GpuIdentity]] = {}

    def identity(self, pci: PciAddress) -> GpuIdentity:
        """Which board sits at an address; raises NvmlError, NotFound where there is none."""
        # Taken before NVML is asked: a board that is exchanged in between is asked for again.
        stamp = self._stamp(pci)
        known = self._known.get(pci)
        if known is not None and known[0] == stamp:
            return known[1]
        found = self._discovery.identity(pci)
        if stamp is not None:
            self._known[pci] = stamp, found
        return found

    def _stamp(self, pci: PciAddress) -> _Stamp | None:
        """What the link has and no other link at its place: a time beside the inode can only differ more."""
        try:
            status = os.lstat(f"{self._folder}/{pci}/driver")
        except OSError:
            return None
        return status.st_ino, status.st_ctime_ns
