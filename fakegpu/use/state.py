"""How much of one fake GPU is used: values that the state of a machine keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class ProcessState:
    """What a process has of a GPU: memory, None where the platform does not tell, and time, from 0 to 1."""

    pid: int
    memory_bytes: int | None = None
    compute: float = 0.0


@dataclass(frozen=True, slots=True)
class PartitionUse:
    """How much of a partition is used; ``used_bytes`` None is what its processes have."""

    gpu_instance: int
    compute_instance: int
    compute: float = 0.0
    used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class GpuUse:
    """How much of a GPU is used; ``compute`` and ``memory`` go from 0 to 1.

    ``used_bytes`` None is what its processes have, ``reserved_bytes`` None what the machine file says. Power
    and temperature are those of a GPU that idles where they are None.
    """

    compute: float = 0.0
    memory: float = 0.0
    used_bytes: int | None = None
    reserved_bytes: int | None = None
    power_milliwatts: int | None = None
    temperature_celsius: int | None = None
    processes: tuple[ProcessState, ...] = ()
    partitions: tuple[PartitionUse, ...] = ()

    @classmethod
    def from_document(cls, document: object) -> GpuUse:
        """Read what ``dataclasses.asdict`` wrote; raises KeyError, TypeError."""
        if not isinstance(document, dict):
            raise TypeError("use is no mapping")
        known: dict[str, Any] = dict(document)
        known["processes"] = tuple(ProcessState(**one) for one in known["processes"])
        known["partitions"] = tuple(PartitionUse(**one) for one in known["partitions"])
        return cls(**known)

    def process(self, pid: int) -> ProcessState:
        """What is said of a process; nothing where nobody said anything."""
        return next((one for one in self.processes if one.pid == pid), ProcessState(pid))

    def partition(self, gpu_instance: int, compute_instance: int) -> PartitionUse:
        """What is said of a partition; an idle one where nobody said anything."""
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
