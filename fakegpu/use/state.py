"""How much of one fake GPU is used: values that the state of a machine keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ProcessState:
    """What a process uses of a GPU: memory, None where NVML does not report it, and time, from 0 to 1."""

    pid: int
    memory_bytes: int | None = None
    compute: float = 0.0


@dataclass(frozen=True, slots=True)
class PartitionUse:
    """How much of a partition is used; without ``used_bytes`` the memory of its processes counts."""

    gpu_instance: int
    compute_instance: int
    compute: float = 0.0
    used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class GpuUse:
    """How much of a GPU is used; ``compute`` and ``memory`` go from 0 to 1.

    None means: for ``used_bytes`` the memory of the GPU's processes, for ``reserved_bytes`` the value of the
    machine file, for power and temperature those of an idle GPU.
    """

    compute: float = 0.0
    memory: float = 0.0
    used_bytes: int | None = None
    reserved_bytes: int | None = None
    power_milliwatts: int | None = None
    temperature_celsius: int | None = None
    processes: tuple[ProcessState, ...] = ()
    partitions: tuple[PartitionUse, ...] = ()

    def process(self, pid: int) -> ProcessState:
        """The use that was set for a process; unknown memory and no time by default."""
        return next((one for one in self.processes if one.pid == pid), ProcessState(pid))

    def partition(self, gpu_instance: int, compute_instance: int) -> PartitionUse:
        """The use that was set for a partition; an idle one by default."""
        idle = PartitionUse(gpu_instance, compute_instance)
        place = (gpu_instance, compute_instance)
        return next(
            (one for one in self.partitions if (one.gpu_instance, one.compute_instance) == place), idle
        )

    def with_processes(self, new: tuple[ProcessState, ...]) -> GpuUse:
        """The use with these processes new or changed."""
        pids = {one.pid for one in new}
        return replace(self, processes=(*(one for one in self.processes if one.pid not in pids), *new))

    def with_partition(self, new: PartitionUse) -> GpuUse:
        """The use with a partition new or changed."""
        place = (new.gpu_instance, new.compute_instance)
        others = tuple(one for one in self.partitions if (one.gpu_instance, one.compute_instance) != place)
        return replace(self, partitions=(*others, new))


IDLE = GpuUse()
