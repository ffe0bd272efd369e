"""The keys of all taints that the driver puts on its devices."""

from __future__ import annotations

TAINT_LOST = "gpu.nvidia.com/gpu-lost"
"""The GPU fell off the bus; NVIDIA's own driver uses the same key."""

TAINT_UNRESPONSIVE = "gpu.nvidia.com/unresponsive"
"""A call into the GPU's driver hangs."""

TAINT_XID = "gpu.nvidia.com/xid"
"""The NVIDIA driver reported a critical error with this code. NVIDIA's own driver uses the same key."""

TAINT_RESET = "gpu.nvidia.com/needs-reset"
"""The GPU works again after a reset."""

TAINT_REBOOT = "gpu.nvidia.com/needs-reboot"
"""The GPU works again after the machine was restarted."""

TAINT_MEMORY = "gpu.nvidia.com/memory"
"""The GPU's memory has errors that nothing repairs, or that wait for a reset to be repaired."""

TAINT_FAILING = "gpu.nvidia.com/failing"
"""A call fails as it does on no healthy GPU, or what decides about the GPU's devices cannot be read."""

TAINT_FABRIC = "gpu.nvidia.com/fabric"
"""The NVLink fabric is not ready or not well: CUDA does not start (error 802), or jobs over links fail."""

TAINT_UNLICENSED = "gpu.nvidia.com/unlicensed"
"""A vGPU without a license: CUDA stops to work on it after a while."""

TAINT_UNMONITORED = "gpu.nvidia.com/unmonitored"
"""Something about the GPU cannot be read, so it is not monitored; NVIDIA's own driver uses the same key."""

TAINT_DRIVER = "gpu.nvidia.com/driver-not-loaded"
"""The node has no NVIDIA driver any more, or not yet again: it is being upgraded, perhaps."""

TAINT_CHANGING = "gpu.nvidia.com/changing"
"""Other devices will be published of this GPU, as soon as no claim has those that go away."""

TAINT_BLOCKED = "gpu.nvidia.com/blocked"
"""Its value is the reason: those of BlockedPlacement, and HELD_BY_CLAIM."""

DELETED_CLAIM = "deleted-claim"
"""A container has the device from a claim that is gone from the API: the scheduler takes it for free."""

HELD_BY_CLAIM = "held-by-claim"
"""A claim still holds a device that is no longer offered, and that lies there; the plugin says the same word
of what a claim has under the name that another driver gave it."""

TAINT_DEVICE_PLUGIN = "gpu.nvidia.com/device-plugin"
"""A device plugin on the node hands the same GPUs out; its value is a resource of it, without nvidia.com/."""
