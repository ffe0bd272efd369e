"""The keys of all taints that the driver puts on its devices."""

from __future__ import annotations

TAINT_LOST = "gpu.nvidia.com/gpu-lost"
"""The GPU fell off the bus; NVIDIA's own driver uses the same key."""

TAINT_UNRESPONSIVE = "gpu.nvidia.com/unresponsive"
"""An NVML call about the GPU hangs."""

TAINT_XID = "gpu.nvidia.com/xid"
"""The NVIDIA driver reported a critical error with this code. NVIDIA's own driver uses the same key."""

TAINT_RESET = "gpu.nvidia.com/needs-reset"
"""The GPU works again after a reset."""

TAINT_REBOOT = "gpu.nvidia.com/needs-reboot"
"""The GPU works again after the machine was restarted."""

TAINT_MEMORY = "gpu.nvidia.com/memory"
"""The GPU's memory has errors that nothing repairs, or that wait for a reset to be repaired."""

TAINT_FAILING = "gpu.nvidia.com/failing"
"""A call fails that succeeds on a healthy GPU, or something that decides the GPU's devices cannot be read."""

TAINT_FABRIC = "gpu.nvidia.com/fabric"
"""The NVLink fabric is not ready or unhealthy: CUDA does not start (error 802), or jobs over NVLink fail."""

TAINT_UNLICENSED = "gpu.nvidia.com/unlicensed"
"""A vGPU without a license: CUDA stops working on it after a while."""

TAINT_UNMONITORED = "gpu.nvidia.com/unmonitored"
"""Something about the GPU cannot be read, so it is not monitored. NVIDIA's own driver uses the same key."""

TAINT_DRIVER = "gpu.nvidia.com/driver-not-loaded"
"""The node has no NVIDIA driver at the moment, perhaps because it is being upgraded."""

TAINT_CHANGING = "gpu.nvidia.com/changing"
"""The device goes away as soon as no claim has it, or it overlaps one that may have to go first."""

TAINT_BLOCKED = "gpu.nvidia.com/blocked"
"""The device cannot be made now. The value is a reason of BlockedPlacement, or HELD_BY_CLAIM."""

DELETED_CLAIM = "deleted-claim"
"""A container has the device from a claim that no longer exists, so the scheduler takes it to be free."""

HELD_BY_CLAIM = "held-by-claim"
"""A claim still holds a device at that place which is no longer offered. The plugin reports the same reason
for a device that a claim has from another driver, under another name."""

TAINT_DEVICE_PLUGIN = "gpu.nvidia.com/device-plugin"
"""A device plugin on the node hands out the same GPUs. The value is its resource, without nvidia.com/."""
