"""The calls of NVML about the memory limits of control groups on one GPU, since driver R615."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from driver.nvml.memory_limits import MemoryLimits


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

        A group without limits of its own may be told those of the nearest group above that has some.
        NoMemoryLimits, a NotFound: it has none.
        """
        ...


MEMORY_CALLS: dict[str, str] = {
    "set_memory_limits": "nvmlDeviceSetMemoryLimits_v1",
    "memory_limits": "nvmlDeviceGetMemoryLimits_v1",
}
"""The calls about memory limits: method of MemoryCalls -> C function that errors name."""
