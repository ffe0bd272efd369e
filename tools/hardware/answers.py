"""Asks a GPU everything that only reads. What comes of it is noted by whoever gives the GPU."""

from __future__ import annotations

from typing import Any

from driver.nvml.api import DriverNotLoaded, GpuLost, NvmlCallFailed, NvmlDevice, SessionLost

_ASKED_OF_EVERY_GPU = (
    *("uuid", "minor", "index", "pci", "name", "brand", "architecture", "compute_capability"),
    *("memory_bytes", "memory_use", "addressing_mode", "numa_node", "module_id", "virtualization"),
    *("nvlinks", "fabric", "vgpu_types", "licensable_features", "compute_mode", "persistence_mode"),
    *("mig_mode", "mig_without_reset", "gpu_instance_profiles", "gpu_instances", "mig_devices"),
    *("mig_processes", "process_ids", "processes", "busy_processes", "utilisation"),
    *("power_milliwatts", "power_limit_milliwatts", "temperature_celsius"),
    *("recovery_action", "remapped_rows", "retired_pages_pending", "unrepairable_memory", "ecc_errors"),
    "fabric_health",
)


def ask_everything(device: NvmlDevice) -> None:
    """Ask all questions, also those about each profile, instance and MIG device.

    Raises GpuLost, SessionLost and DriverNotLoaded; another question that fails is passed over.
    """
    answers = {method: _ask(device, method) for method in _ASKED_OF_EVERY_GPU}
    for profile in answers["gpu_instance_profiles"] or ():
        _ask(device, "gpu_instance_placements", profile.id)
    for instance in answers["gpu_instances"] or ():
        for method in ("compute_instance_profiles", "compute_instances", "partition_utilisation"):
            _ask(device, method, instance.id)
    for mig in answers["mig_devices"] or ():
        _ask(device, "partition_memory_use", mig.gpu_instance_id, mig.compute_instance_id)


def _ask(device: NvmlDevice, method: str, *arguments: int) -> Any:
    try:
        return getattr(device, method)(*arguments)
    except (SessionLost, DriverNotLoaded, GpuLost):
        raise
    except NvmlCallFailed:
        return None
