"""What NVML says of how much of a GPU is used, as plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The memory of a GPU or a partition, in bytes (nvmlDeviceGetMemoryInfo_v2).

    ``used_bytes`` is what processes have, without what the NVIDIA driver reserves for itself.
    """

    total_bytes: int
    used_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True)
class Utilisation:
    """How busy a GPU was during NVML's last sample, from 0 to 1 (nvmlDeviceGetUtilizationRates).

    ``compute`` is the part of the time in which a kernel ran, ``memory`` that in which memory was read or
    written.
    """

    compute: float
    memory: float


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """A process that uses a GPU or a partition (nvmlDeviceGetComputeRunningProcesses_v3).

    ``pid`` is that of the host. ``memory_bytes`` is None where the platform does not tell.
    ``gpu_instance`` and ``compute_instance`` are NVML's ids, None outside of partitions.
    """

    pid: int
    memory_bytes: int | None
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessBusy:
    """How busy a process kept a GPU lately, from 0 to 1 (nvmlDeviceGetProcessUtilization)."""

    pid: int
    compute: float
