"""Asks NVML how much memory of a GPU claims can share, and whether the NVIDIA driver limits it by cgroup."""

from __future__ import annotations

from driver.nvml.api import Code, NotFound, NotSupported, NvmlDevice
from driver.nvml.deadline import Watch
from driver.nvml.memory_limits import NO_LIMIT_BYTES

_ROOT = "/sys/fs/cgroup"
"""Where NVML expects cgroup v2; its root never has limits."""


def shareable_bytes(device: NvmlDevice, watch: Watch) -> int:
    """The memory that claims can divide among them: what the NVIDIA driver keeps for itself is taken off.

    A driver from before R510 does not tell that.
    """
    try:
        use = watch("memory_use", device.memory_use)
    except NotSupported:
        return watch("memory_bytes", device.memory_bytes)
    return use.total_bytes - use.reserved_bytes


def can_be_limited(device: NvmlDevice, watch: Watch) -> bool:
    """Whether the GPU's driver holds limits, on a node with cgroup v2.

    Where limits can be, nvmlDeviceGetMemoryLimits_v1 says that the root has none. With a kernel without the
    controller ``dmem`` the NVIDIA driver counts by itself, and may say of a group without limits that it is
    not supported. Taking the limits away from a group without any changes nothing, and tells for certain.
    Raises NvmlError where neither tells.
    """
    try:
        watch("memory_limits", lambda: device.memory_limits(_ROOT))
    except NotSupported as error:
        if error.code == Code.FUNCTION_NOT_FOUND:
            return False
    except NotFound as error:
        return _of_the_group(error)
    else:
        return True
    try:
        watch("set_memory_limits", lambda: device.set_memory_limits(_ROOT, 0, NO_LIMIT_BYTES))
    except NotSupported:
        return False
    except NotFound as error:
        return _of_the_group(error)
    return True


def _of_the_group(error: NotFound) -> bool:
    """True where limits, or files of ``dmem``, are what the group lacks; raises where it is the GPU."""
    if error.code != Code.NOT_FOUND:
        raise error
    return True
