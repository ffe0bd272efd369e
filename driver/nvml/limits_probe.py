"""Asks NVML how much of a GPU's memory claims can share, and whether the driver can limit it by cgroup."""

from __future__ import annotations

from driver.nvml.api import Code, NotFound, NotSupported, NvmlDevice
from driver.nvml.deadline import Watch
from driver.nvml.memory_limits import NO_LIMIT_BYTES

# NVML takes full paths below this mount of cgroup v2. The root group never has limits, so clearing those of
# the root changes nothing.
_ROOT = "/sys/fs/cgroup"


def shareable_bytes(device: NvmlDevice, watch: Watch) -> int:
    """The memory that claims can divide: all of it, less what the NVIDIA driver reserves for itself.

    A driver older than R510 does not report what it reserves; then it is all of the memory.
    """
    try:
        use = watch("memory_use", device.memory_use)
    except NotSupported:
        return watch("memory_bytes", device.memory_bytes)
    # Reserved memory is the firmware's and the driver's: no process can ever allocate it.
    return use.total_bytes - use.reserved_bytes


def can_be_limited(device: NvmlDevice, watch: Watch) -> bool:
    """Whether the NVIDIA driver can limit the GPU's memory by cgroup, on a node with cgroup v2.

    If it can, nvmlDeviceGetMemoryLimits_v1 answers that the root cgroup has no limits. On a kernel without
    the ``dmem`` controller the NVIDIA driver counts by itself, and may answer "not supported" for a group
    without limits. Then clearing the root's limits decides: there are none, so it changes nothing. Raises
    NvmlError if neither call gives an answer.
    """
    try:
        watch("memory_limits", lambda: device.memory_limits(_ROOT))
    except NotSupported as error:
        # A library without the symbol is older than R615 and certainly cannot limit anything. NOT_SUPPORTED
        # alone does not decide, see above.
        if error.code == Code.FUNCTION_NOT_FOUND:
            return False
    except NotFound as error:
        return _of_the_group(error)
    else:
        return True
    try:
        # A soft limit of 0 with this hard limit clears both limits (nvml.h).
        watch("set_memory_limits", lambda: device.set_memory_limits(_ROOT, 0, NO_LIMIT_BYTES))
    except NotSupported:
        return False
    except NotFound as error:
        return _of_the_group(error)
    return True


def _of_the_group(error: NotFound) -> bool:
    """True if the group lacks limits, or the files of ``dmem``; raises the error if the GPU was not found."""
    # NotFound is also the error for GPU_NOT_FOUND.
    if error.code != Code.NOT_FOUND:
        raise error
    return True
