"""Limits of GPU memory that the NVIDIA driver itself holds: how they are published, the least of them.

NVML holds the processes of one cgroup to them since driver R615 (nvmlDeviceSetMemoryLimits_v1).
"""

from __future__ import annotations

FIRST_DRIVER = 615
"""The branch of the NVIDIA driver that brought them."""

MEMORY_LIMITS = "memoryLimits"
"""The attribute of a device whose containers the NVIDIA driver can hold to their memory."""

BY_CGROUP = "cgroup"
"""Its value, and that of ``memoryIsolation`` where nothing else keeps the memory of shares apart."""

LIMITS_WITHHELD = "memoryLimitsWithheld"
"""The attribute that says why a device with such a driver lacks them, where nothing else published tells."""

SMALLEST_LIMIT_BYTES = 512 * 2**20
"""The least that a container is held to, and so the least that a share is.

A CUDA context takes some hundred MiB of the GPU before a program has allocated anything, and about half a GiB
where it loads all of its kernels at once. That counts for the limit, so a program with less would not
start, and its message would not say why. Not seen on hardware under a limit.
"""
