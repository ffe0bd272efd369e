"""The NVML calls of one check of a GPU, and what a missing answer means for the node's devices.

While a call fails, the earlier answer of the same board stays valid, since a failure says nothing new about
the board. Calls that never had an answer are in ``Gpu.unanswered``. No device is offered that would need a
guess of such an answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from driver.nvml.api import GPU_CALLS

DECIDING: Mapping[str, str] = {
    "device_by_index": "nothing works without a handle",
    "pci": "every device is named after it",
    "uuid": "tells an exchanged board from the one that was here",
    "minor": "names the device node that containers get",
    "virtualization": "a vGPU guest may not cut its GPU and has no compute modes",
    "vgpu_types": "which vGPUs a host can make of the GPU",
    "mig_mode": "a GPU in MIG mode is no whole GPU",
    "memory_bytes": "decides whether the memory can be shared out, and in which steps",
    "memory_use": "how much of the memory the NVIDIA driver keeps for itself, and nobody can share",
    "compute_capability": "decides whether MPS can limit its clients",
    "gpu_instance_profiles": "which partitions can be made",
    "gpu_instance_placements": "where partitions can lie",
    "gpu_instances": "which partitions an admin has made",
    "compute_instances": "which partitions an admin has made",
    "mig_devices": "which partitions an admin has made",
}
"""The calls (driver.nvml.api) that decide which devices there are, and why.

A failure of such a call always becomes a taint that keeps new pods away. All other calls describe a GPU or
its health: a failure that says nothing about the GPU only becomes a mark.
"""

MAY_END = frozenset({"nvlinks", "fabric"})
"""Calls that a GPU may stop to support, in MIG mode. For any other call that was answered before,
"not supported" is a fault."""

FABRIC_PARTITIONS = "fabric_partitions"
"""In ``Gpu.unanswered`` while the fabric manager runs and has never reported its partitions, which are
attributes of devices."""

EVERYTHING = frozenset(GPU_CALLS)
"""The calls that are unanswered for a GPU whose check ended early."""

MEMORY_CALLS = frozenset({"memory_bytes", "memory_use"})
"""The calls that decide how much memory claims can share."""

PROFILE_CALLS = frozenset({"gpu_instance_profiles", "gpu_instance_placements"})
INSTANCE_CALLS = frozenset({"gpu_instances", "compute_instances", "mig_devices"})
