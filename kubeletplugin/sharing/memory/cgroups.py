"""The control groups of the node's containers: folders of cgroup v2."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Protocol

from driver.errors import ClaimBlocked, ClaimRefused
from driver.nvml.memory_limits import Cgroup

# NVML takes full paths of groups below this mount point, and no other.
_NVML_MOUNT = PurePosixPath("/sys/fs/cgroup")
# The line of cgroup v2 in /proc/PID/cgroup. Each hierarchy of v1 has a number and its controllers instead.
_V2 = "0::"
# The kernel appends this if the folder was removed while the process still belongs to it (cgroups(7)).
_DELETED = " (deleted)"


class Cgroups(Protocol):
    """The control groups of containers, by which the NVIDIA driver limits their memory."""

    def of_process(self, proc_cgroup: str) -> Cgroup:
        """The group of a process, from the text of its /proc/PID/cgroup as the host sees it.

        Raises ClaimRefused on a node with cgroup v1, also if v2 is mounted beside it; ClaimBlocked if the
        group is gone, or is not one that can be limited.
        """
        ...

    def is_there(self, cgroup: Cgroup) -> bool:
        """Whether this group still exists and has processes. A later one of the same path does not count."""
        ...


class RealCgroups:
    """The groups below ``root``, where this process sees the host's mount of cgroup v2."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def of_process(self, proc_cgroup: str) -> Cgroup:
        """As in the protocol; it works with systemd's slices and with cgroupfs."""
        # In the root of cgroup v2 this file always exists. In hybrid mode the root is a tmpfs without it.
        if not (self._root / "cgroup.controllers").exists():
            raise ClaimRefused(
                "the node has cgroup v1, but NVML limits memory only by groups of cgroup v2",
                "start the node with systemd.unified_cgroup_hierarchy=1, or set `memoryLimits: false` in the "
                "node configuration",
            )
        path = next(
            (line.removeprefix(_V2) for line in proc_cgroup.splitlines() if line.startswith(_V2)), None
        )
        if path is None or not path.startswith("/") or path.endswith(_DELETED):
            raise ClaimBlocked(
                f"the container has no control group of cgroup v2: {proc_cgroup[:200].strip()!r}",
                "check whether it has ended",
            )
        # The kernel shows a group outside of the reader's cgroup namespace as a path that begins with "/..".
        if ".." in PurePosixPath(path).parts or "\0" in path:
            raise ClaimBlocked(
                f"the container's control group {path!r} is outside of what the hook can see",
                "run the container runtime's hooks in the node's own cgroup namespace",
            )
        if path == "/":
            raise ClaimBlocked(
                "the container is in the root of all control groups, which NVML cannot limit",
                "have the container runtime make a control group for each container",
            )
        inode = self._inode(self._root / path.lstrip("/"))
        if inode is None:
            raise ClaimBlocked(f"the control group {path} is gone", "check whether the container has ended")
        return Cgroup(str(_NVML_MOUNT / path.lstrip("/")), inode)

    def is_there(self, cgroup: Cgroup) -> bool:
        """As in the protocol. Processes in groups below it count, too."""
        folder = self._root / PurePosixPath(cgroup.path).relative_to(_NVML_MOUNT)
        if self._inode(folder) != cgroup.inode:
            return False
        # A container whose processes have all ended uses no memory, and nothing can start in it any more,
        # even if the runtime has not removed its group yet. "populated" includes the groups below.
        try:
            return "populated 0" not in (folder / "cgroup.events").read_text().splitlines()
        except FileNotFoundError:
            return self._inode(folder) == cgroup.inode
        # ENODEV if it was removed since it was opened. Any other error says nothing about the group.
        except OSError:
            return self._inode(folder) == cgroup.inode

    def _inode(self, folder: Path) -> int | None:
        """The inode of a folder, None if it does not exist. The kernel gives no later group the same one."""
        try:
            return os.stat(folder).st_ino  # noqa: PTH116 - for each container in each pass
        except OSError:
            return None
