"""The calls of NVML about how much of a GPU is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from driver.nvml.use.values import MemoryUse, ProcessBusy, ProcessUse, Utilisation


class UseCalls(Protocol):
    """The part of a GPU's handle about its use; every call may raise NvmlError.

    NotSupported: the GPU or the NVIDIA driver does not tell, as most of this with MIG on.
    """

    def memory_use(self) -> MemoryUse:
        """All of the GPU's memory (nvmlDeviceGetMemoryInfo_v2)."""
        ...

    def partition_memory_use(self, gpu_instance: int, compute_instance: int) -> MemoryUse:
        """The memory of one partition, which parts of its GPU instance share; NotFound: there is none.

        nvmlDeviceGetMemoryInfo_v2 on the MIG device's handle.
        """
        ...

    def utilisation(self) -> Utilisation:
        """How busy the GPU is (nvmlDeviceGetUtilizationRates); NotSupported with MIG on."""
        ...

    def partition_utilisation(self, gpu_instance: int) -> float:
        """How busy a GPU instance's multiprocessors are, from 0 to 1; NotSupported before Hopper.

        nvmlGpmMigSampleGet and nvmlGpmMetricsGet (graphics utilisation): the first call begins a sample and
        raises NotSupported where there is none yet to compare with.
        """
        ...

    def power_milliwatts(self) -> int:
        """What the board draws (nvmlDeviceGetPowerUsage)."""
        ...

    def power_limit_milliwatts(self) -> int:
        """What the board may draw (nvmlDeviceGetEnforcedPowerLimit)."""
        ...

    def temperature_celsius(self) -> int:
        """The GPU's temperature (nvmlDeviceGetTemperature)."""
        ...

    def processes(self) -> tuple[ProcessUse, ...]:
        """Who computes or draws on the GPU and its partitions, sorted by pid.

        nvmlDeviceGetComputeRunningProcesses_v3 and nvmlDeviceGetGraphicsRunningProcesses_v3, with MIG on
        those of each MIG device's handle.
        """
        ...

    def busy_processes(self) -> tuple[ProcessBusy, ...]:
        """How busy each process kept the GPU in the last second (nvmlDeviceGetProcessUtilization).

        Empty where nobody computed.
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
