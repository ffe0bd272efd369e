"""The control groups of containers, by which the NVIDIA driver holds them to their memory."""

from __future__ import annotations

from typing import Protocol

from driver.nvml.memory_limits import Cgroup

__all__ = ["Cgroup", "Cgroups"]


class Cgroups(Protocol):
    """The control groups of the node."""

    def of_process(self, told: str) -> Cgroup:
        """The group that a process lies in, from the text of its /proc/PID/cgroup as the host has it.

        Raises ClaimRefused on a node with cgroup v1 alone, ClaimBlocked where there is no such folder (any
        more).
        """
        ...

    def is_there(self, cgroup: Cgroup) -> bool:
        """Whether this very group still exists, and its processes have not all ended."""
        ...
