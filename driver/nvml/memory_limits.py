"""NVML's calls and values, since R615, for how much of a GPU's memory a control group may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

NO_LIMIT_BYTES = 2**64 - 1
"""The hard limit that means none; with a soft limit of 0 it clears both (nvml.h)."""


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """The limits of one control group on one GPU, in bytes.

    ``hard_bytes`` is the most that can be allocated. ``soft_bytes`` may be kept under pressure: a group with
    more than that loses memory first, and only where an MPS server takes it. ``used_bytes`` is what is
    allocated now (nvmlGetMemoryLimits_v1_t).
    """

    soft_bytes: int
    hard_bytes: int
    used_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One control group of a container.

    ``path`` is its folder as NVML takes it, ``/sys/fs/cgroup/…``. ``inode`` is that of the folder, by which
    a later group at the same path differs.
    """

    path: str
    inode: int


class MemoryCalls(Protocol):
    """The part of a GPU's handle about memory limits; every call may raise NvmlError.

    ``cgroup`` is the full path of a folder of cgroup v2, below /sys/fs/cgroup; limits are those of the
    processes in it. NotSupported: the NVIDIA driver is older than R615, or the GPU has none, as in a vGPU
    guest or with MIG on. NvmlCallFailed has OPERATING_SYSTEM where there is no such folder.
    """

    def set_memory_limits(self, cgroup: str, soft_bytes: int, hard_bytes: int) -> None:
        """Let the group allocate ``hard_bytes`` at most; the kernel driver refuses more.

        A soft limit of 0 with a hard one of NO_LIMIT_BYTES clears both (nvmlDeviceSetMemoryLimits_v1). Only
        what goes beyond its soft limit may be taken from a group under pressure, and only an MPS server
        takes it. NvmlCallFailed with INVALID_ARGUMENT: the soft limit is above the hard one, or one is above
        the GPU's memory; NO_PERMISSION: not root.
        """
        ...

    def memory_limits(self, cgroup: str) -> MemoryLimits:
        """The limits of the group, and what it has allocated now (nvmlDeviceGetMemoryLimits_v1).

        For a group without limits NVML may give those of the nearest group above that has some.
        NoMemoryLimits, a NotFound: it has none.
        """
        ...


MEMORY_CALLS: dict[str, str] = {
    "set_memory_limits": "nvmlDeviceSetMemoryLimits_v1",
    "memory_limits": "nvmlDeviceGetMemoryLimits_v1",
}
"""The calls about memory limits: method of MemoryCalls -> C function that errors name."""
