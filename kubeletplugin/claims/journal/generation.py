"""Tells one load of the NVIDIA kernel driver from the next, within a boot."""

from __future__ import annotations

import os
from pathlib import Path


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
