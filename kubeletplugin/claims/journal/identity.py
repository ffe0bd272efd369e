"""The plugin's identity, the clock of the boot, and the load of the NVIDIA driver."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


def boottime_ns() -> int:
    """Nanoseconds since the machine started."""
    # Unlike CLOCK_MONOTONIC it goes on while the machine is suspended. Nobody can set it, as the time of day
    # can be set, and it is the same in all processes.
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def is_same_load(one: str, other: str) -> bool:
    """Whether two generations of the NVIDIA driver are one load of it, so that what was made still exists.

    A generation is empty if it was not known. Two loads then count as the same, and callers find out from the
    hardware.
    """
    return not (one and other) or one == other


@dataclass(frozen=True, slots=True)
class Identity:
    """The DRA driver, the pool of this node, and the running boot.

    ``driver_generation()`` differs between the loads of the NVIDIA driver within the boot.
    """

    driver: str
    pool: str
    boot_id: str
    driver_generation: Callable[[], str] = lambda: ""


def driver_generation(sysfs_root: Path) -> str:
    """An id of the current load of the NVIDIA driver that no other load of this boot has.

    Empty if the driver is not loaded, or if sysfs cannot be read.
    """
    # The inode number of the module's folder in sysfs. The kernel makes the folder when the module is loaded,
    # and removes it when the module is unloaded. sysfs is a kernfs: the number is the node's id, which kernfs
    # counts up over its whole life, and every mount of sysfs shows the same. On 64-bit machines it is the
    # whole id of 64 bits since Linux 5.5; before, and on others, its lower half, which is used again after
    # 2^31 nodes at the earliest. The folder's times are of no use: the kernel sets those of a kernfs inode
    # when it needs the inode, and again when memory was short in between.
    try:
        return str(os.stat(f"{sysfs_root}/module/nvidia").st_ino)  # noqa: PTH116 - on every prepare
    except OSError:
        return ""
