"""The NVML calls of one check of a GPU, and what a missing answer means for the node's devices.

An earlier answer of the same board stays valid while the call fails: a fault says nothing new about the
board. Calls that never had an answer are in ``Gpu.unanswered``, and nothing is offered that would have to
guess them.
"""

from __future__ import annotations

from collections.abc import Mapping

DECIDING: Mapping[str, str] = {
    "device_by_index": "without a handle nothing else can be asked",
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
"""The calls (driver.nvml.api) on which it depends which devices there are, and why.

Such a call does not fail without a taint that keeps new pods away.
"""

DESCRIBING: Mapping[str, str] = {
    "name": "an attribute; rules of the node configuration may ask for it",
    "brand": "an attribute; rules of the node configuration may ask for it",
    "architecture": "an attribute; rules of the node configuration may ask for it",
    "numa_node": "an attribute, of which sysfs tells first",
    "addressing_mode": "an attribute",
    "mig_without_reset": "whether partitions can be made, which the architecture tells as well",
    "nvlinks": "attributes; which island a GPU is in, its neighbours tell as well",
    "module_id": "an attribute; tells the GPU's partitions of the NVLink fabric",
    "memory_limits": "attributes: whether the NVIDIA driver holds shares to their memory",
    "licensable_features": "attributes and a taint of vGPUs, and asked of those alone",
    "fabric": "an attribute; splits islands only where GPUs of a node differ in it",
}
"""The calls that no device depends on: a failure of one that says nothing about the GPU is only marked."""

CONDITION: Mapping[str, str] = {
    "recovery_action": "what makes the GPU well again",
    "remapped_rows": "whether a row of the memory waits to be replaced, or could not be",
    "retired_pages_pending": "whether a bad page of the memory stays in use until a reset",
    "unrepairable_memory": "whether the memory has what no reset repairs",
    "fabric_health": "whether the GPU's part of the NVLink fabric is well; asked in a fabric that is up",
}
"""The calls about a GPU's health and board alone: a failure of one is marked as of those above.

They come last in a check. "Not supported" is remembered of a board for as long as the NVIDIA driver stays.
"""

MAY_END = frozenset({"nvlinks", "fabric"})
"""What a GPU may stop to support, in MIG mode. "Not supported" of others is a fault once answered."""

OF_THE_DRIVER = "memory_limits"
"""What another version of the NVIDIA driver may answer otherwise, so that its answer ends with the driver."""

FABRIC_PARTITIONS = "fabric_partitions"
"""In ``Gpu.unanswered`` while the fabric manager runs and never gave its partitions: they are attributes."""

EVERYTHING = frozenset({*DECIDING, *DESCRIBING})
"""What is not known of a GPU whose walk ended early."""

MEMORY_CALLS = frozenset({"memory_bytes", "memory_use"})
"""The calls on which it depends how much memory claims can share."""

PROFILE_CALLS = frozenset({"gpu_instance_profiles", "gpu_instance_placements"})
INSTANCE_CALLS = frozenset({"gpu_instances", "compute_instances", "mig_devices"})
