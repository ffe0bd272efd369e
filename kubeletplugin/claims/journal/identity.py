"""The plugin's identity, the clock of the boot, and the era in which things made on the hardware last."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


def boottime_ns() -> int:
    """Nanoseconds since the machine started, suspend included: the same clock in every process."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def unknown_generation() -> str:
    """The generation of the NVIDIA driver where it is not known."""
    return ""


@dataclass(frozen=True, slots=True)
class Era:
    """The time in which things made on the hardware last: a boot, and in it one load of the NVIDIA driver.

    ``driver_generation`` tells one load from the next, empty where that is not known: without a driver.
    """

    boot_id: str
    driver_generation: str = ""

    def covers(self, boot_id: str, driver_generation: str) -> bool:
        """Whether what was noted in that boot, by that load of the driver, means anything now.

        Where one of the two loads is not known, they count as the same: who looks at the hardware finds out.
        """
        if boot_id != self.boot_id:
            return False
        return (
            not (driver_generation and self.driver_generation) or driver_generation == self.driver_generation
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose claims these are: the driver, the pool of this node, and the boot that is running.

    ``driver_generation()`` tells the loads of the NVIDIA driver within the boot apart.
    """

    driver: str
    pool: str
    boot_id: str
    driver_generation: Callable[[], str] = unknown_generation

    def era(self) -> Era:
        """The era that is now."""
        return Era(self.boot_id, self.driver_generation())


def driver_generation(sysfs_root: Path) -> str:
    """What the load of the driver that is there now has and no other load of this boot; empty without one.

    It is the inode number of the module's folder in sysfs, which the kernel makes when the module is loaded
    and removes when it is unloaded. sysfs is a kernfs: the number is the node's id, which kernfs counts
    upwards over its whole life, and every mount of sysfs shows the same. On 64-bit machines it is the whole
    id of 64 bits since Linux 5.5; before, and on others, its lower half, which is used again after 2^31 nodes
    at the earliest. Times are of no use: the kernel takes those of a kernfs inode from the clock when it
    needs the inode, and again when memory was short in between.

    Where sysfs does not tell, it is empty, too: who looks at the hardware finds out.
    """
    try:
        return str(os.stat(f"{sysfs_root}/module/nvidia").st_ino)  # noqa: PTH116 - on every prepare
    except OSError:
        return ""
