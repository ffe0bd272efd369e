"""The control groups of containers, by which the NVIDIA driver holds them to their memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One control group of a container.

    ``path`` is its folder as NVML takes it, ``/sys/fs/cgroup/…``. ``inode`` is that of the folder, by which
    a later group at the same path is told from it.
    """

    path: str
    inode: int


class Cgroups(Protocol):
    """The control groups of the node."""

    def of_process(self, told: str) -> Cgroup:
        """The group that a process lies in, from the text of its /proc/PID/cgroup as the host has it.

        Raises ClaimRefused on a node with cgroup v1 alone, ClaimBlocked where there is no such folder (any
        more).
        """
        ...

    def is_there(self, cgroup: Cgroup) -> bool:
        """Whether this very group still exists."""
        ...
