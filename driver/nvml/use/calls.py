"""NVML's calls about how much of a GPU is used, and their answers as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The memory of a GPU or a partition, in bytes (nvmlDeviceGetMemoryInfo_v2).

    ``used_bytes`` belongs to processes; it does not include what the NVIDIA driver reserves for itself.
    """

    total_bytes: int
    used_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True)
class Utilisation:
    """How busy a GPU was during NVML's last sample, from 0 to 1 (nvmlDeviceGetUtilizationRates).

    ``compute`` is the part of the time in which a kernel ran. ``memory`` is the part of the time in which
    memory was read or written.
    """

    compute: float
    memory: float


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """A process that uses a GPU or a partition (nvmlDeviceGetComputeRunningProcesses_v3).

    ``pid`` is the host's number. ``memory_bytes`` is None if the platform does not report it.
    ``gpu_instance`` and ``compute_instance`` are NVML's ids, None outside of MIG.
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


class UseCalls(Protocol):
    """The part of a GPU's handle about its use; every call may raise NvmlError.

    NotSupported: the GPU or the NVIDIA driver does not report it. With MIG on that is most of this.
    """

    def memory_use(self) -> MemoryUse:
        """All of the GPU's memory (nvmlDeviceGetMemoryInfo_v2)."""
        ...

    def partition_memory_use(self, gpu_instance: int, compute_instance: int) -> MemoryUse:
        """The memory of one MIG device; compute instances share their GPU instance's.

        nvmlDeviceGetMemoryInfo_v2 on the MIG device's handle.
        """
        ...

    def utilisation(self) -> Utilisation:
        """How busy the GPU is (nvmlDeviceGetUtilizationRates); NotSupported with MIG on."""
        ...

    def partition_utilisation(self, gpu_instance: int) -> float:
        """How busy a GPU instance's multiprocessors are, from 0 to 1; NotSupported before Hopper.

        nvmlGpmMigSampleGet and nvmlGpmMetricsGet (graphics utilisation). It is computed between this call and
        the one before, so the first call raises NotSupported.
        """
        ...

    def power_milliwatts(self) -> int:
        """The power that the board draws now (nvmlDeviceGetPowerUsage)."""
        ...

    def power_limit_milliwatts(self) -> int:
        """The power that the board may draw (nvmlDeviceGetEnforcedPowerLimit)."""
        ...

    def temperature_celsius(self) -> int:
        """The GPU's temperature (nvmlDeviceGetTemperature)."""
        ...

    def processes(self) -> tuple[ProcessUse, ...]:
        """The processes that compute or draw on the GPU and its partitions, sorted by pid.

        (nvmlDeviceGetComputeRunningProcesses_v3, nvmlDeviceGetGraphicsRunningProcesses_v3)
        """
        ...

    def busy_processes(self) -> tuple[ProcessBusy, ...]:
        """How busy each process kept the GPU in the last second (nvmlDeviceGetProcessUtilization).

        Empty where no process computed.
        """
        ...


USE_CALLS: dict[str, str] = {
    "memory_use": "nvmlDeviceGetMemoryInfo_v2",
    "partition_memory_use": "nvmlDeviceGetMemoryInfo_v2",
    "utilisation": "nvmlDeviceGetUtilizationRates",
    "partition_utilisation": "nvmlGpmMigSampleGet",
    "power_milliwatts": "nvmlDeviceGetPowerUsage",
    "power_limit_milliwatts": "nvmlDeviceGetEnforcedPowerLimit",
    "temperature_celsius": "nvmlDeviceGetTemperature",
    "processes": "nvmlDeviceGetComputeRunningProcesses_v3",
    "busy_processes": "nvmlDeviceGetProcessUtilization",
}
"""The calls about use: method of UseCalls -> C function that errors name."""
