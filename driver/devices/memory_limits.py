"""Limits on GPU memory that the NVIDIA driver itself enforces: how they are published, and the smallest one.

They apply to the processes of one cgroup, since driver R615 (nvmlDeviceSetMemoryLimits_v1).
"""

from __future__ import annotations

FIRST_DRIVER = 615
"""The first branch of the NVIDIA driver that has them."""

MEMORY_LIMITS = "memoryLimits"
"""The attribute of a device for which the NVIDIA driver can limit the memory of containers."""

BY_CGROUP = "cgroup"
"""Its value; also the value of ``memoryIsolation`` if only these limits keep the memory of shares apart."""

LIMITS_WITHHELD = "memoryLimitsWithheld"
"""The attribute that says why a device lacks the limits although the NVIDIA driver is new enough."""

# A CUDA context takes some hundred MiB of the GPU before a program has allocated anything, and about half a
# GiB if it loads all of its kernels at once. That counts towards the limit, so with less a program would not
# start, and its message would not say why. Not seen on hardware under a limit.
SMALLEST_LIMIT_BYTES = 512 * 2**20
"""The smallest limit of a container, and so the smallest share."""
