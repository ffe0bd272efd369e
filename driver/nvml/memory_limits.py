"""NVML's calls and values, since R615, for how much of a GPU's memory a control group may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

NO_LIMIT_BYTES = 2**64 - 1
"""The hard limit that means "no limit"; together with a soft limit of 0 it clears both (nvml.h)."""


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """The limits of one control group on one GPU, in bytes (nvmlGetMemoryLimits_v1_t)."""

    # Under memory pressure the group keeps this much. Only an MPS server takes what it has beyond that.
    soft_bytes: int
    # The most that the group can allocate.
    hard_bytes: int
    # Allocated now.
    used_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One control group of a container."""

    # Its folder as NVML takes it, ``/sys/fs/cgroup/…``.
    path: str
    # The inode of the folder: a later group may have the same path, but not the same inode.
    inode: int


class MemoryCalls(Protocol):
    """The part of a GPU's handle about memory limits; every call may raise NvmlError.

    ``cgroup`` is the full path of a folder of cgroup v2, below /sys/fs/cgroup. A limit applies to the
    processes in it. NotSupported: the NVIDIA driver is older than R615, or the GPU has no limits, as in a
    vGPU guest or with MIG on. NvmlCallFailed with OPERATING_SYSTEM: there is no such folder.
    """

    def set_memory_limits(self, cgroup: str, soft_bytes: int, hard_bytes: int) -> None:
        """Let the group allocate ``hard_bytes`` at most; the kernel driver refuses more.

        A soft limit of 0 with a hard limit of NO_LIMIT_BYTES clears both (nvmlDeviceSetMemoryLimits_v1).
        NvmlCallFailed with INVALID_ARGUMENT: the soft limit is above the hard one, or one is above the GPU's
        memory; NO_PERMISSION: not root.
        """
        ...

    def memory_limits(self, cgroup: str) -> MemoryLimits:
        """The limits of the group, and what it has allocated now (nvmlDeviceGetMemoryLimits_v1).

        For a group without limits NVML may answer with those of the nearest group above it that has some.
        NoMemoryLimits, a NotFound: the group has no limits.
        """
        ...


MEMORY_CALLS: dict[str, str] = {
    "set_memory_limits": "nvmlDeviceSetMemoryLimits_v1",
    "memory_limits": "nvmlDeviceGetMemoryLimits_v1",
}
"""The calls about memory limits: method of MemoryCalls -> C function that errors name."""
