"""The control groups of a real node: folders of cgroup v2."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Protocol

from driver.errors import ClaimBlocked, ClaimRefused
from driver.nvml.memory_limits import Cgroup

__all__ = ["Cgroup", "Cgroups"]

_FOR_NVML = PurePosixPath("/sys/fs/cgroup")
"""Where NVML, which takes no other place, looks for groups."""

_V2 = "0::"
_GONE = " (deleted)"


class Cgroups(Protocol):
    """The control groups of containers, by which the NVIDIA driver limits their memory."""

    def of_process(self, told: str) -> Cgroup:
        """The group that a process lies in, from the text of its /proc/PID/cgroup as the host has it.

        Raises ClaimRefused on a node with cgroup v1 alone, ClaimBlocked where there is no such folder (any
        more).
        """
        ...

    def is_there(self, cgroup: Cgroup) -> bool:
        """Whether this very group still exists, and its processes have not all ended."""
        ...


class RealCgroups:
    """The groups below ``root``, where cgroup v2 is mounted, which may not be where NVML has it.

    systemd's slices and the kubelet's own folders are the same to it: the kernel says where a process is.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def of_process(self, told: str) -> Cgroup:
        """The group of a process, from its /proc/PID/cgroup (cgroups(7)).

        Raises ClaimRefused on a node with cgroup v1, also where the unified hierarchy is mounted beside it;
        ClaimBlocked where there is no such group (any more).
        """
        if not (self._root / "cgroup.controllers").exists():
            raise ClaimRefused(
                "the node has cgroup v1, and NVML limits memory by groups of cgroup v2 alone",
                "start the node with systemd.unified_cgroup_hierarchy=1, or set `memoryLimits: false` in the "
                "node configuration",
            )
        path = next((line.removeprefix(_V2) for line in told.splitlines() if line.startswith(_V2)), None)
        if path is None or not path.startswith("/") or path.endswith(_GONE):
            raise ClaimBlocked(
                f"the container has no control group of cgroup v2: {told[:200].strip()!r}",
                "see whether it has ended meanwhile",
            )
        if ".." in PurePosixPath(path).parts or "\0" in path:
            raise ClaimBlocked(
                f"the container's control group {path!r} lies outside of what the hook can see",
                "run the container runtime's hooks in the node's own cgroup namespace",
            )
        if path == "/":
            raise ClaimBlocked(
                "the container lies in the root of all control groups, which NVML cannot limit",
                "have the container runtime make a control group for each container",
            )
        inode = self._inode(self._root / path.lstrip("/"))
        if inode is None:
            raise ClaimBlocked(f"the control group {path} is gone", "see whether the container has ended")
        return Cgroup(str(_FOR_NVML / path.lstrip("/")), inode)

    def is_there(self, cgroup: Cgroup) -> bool:
        """Whether this very group still exists and has processes, in groups below it as well.

        A container whose processes have all ended uses nothing any more, and nothing can start in it, though
        the runtime may not have removed its group yet. The kernel counts the groups below in.
        """
        folder = self._root / PurePosixPath(cgroup.path).relative_to(_FOR_NVML)
        if self._inode(folder) != cgroup.inode:
            return False
        try:
            return "populated 0" not in (folder / "cgroup.events").read_text().splitlines()
        except FileNotFoundError:
            return self._inode(folder) == cgroup.inode
        except OSError:  # ENODEV: it was removed meanwhile; whatever else says nothing
            return self._inode(folder) == cgroup.inode

    def _inode(self, folder: Path) -> int | None:
        """The inode of a folder, which the kernel does not use again; None where there is none."""
        try:
            return os.stat(folder).st_ino  # noqa: PTH116 - of each container at each look
        except OSError:
            return None
