"""Reads from NVML how much of a GPU and of its partitions is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from driver.nvml.api import (
    DriverNotLoaded,
    GpuLost,
    NvmlCallFailed,
    NvmlDevice,
    NvmlTimeout,
    SessionLost,
)
from driver.nvml.deadline import Watch
from driver.nvml.use.calls import MemoryUse, ProcessBusy, ProcessUse, Utilisation

T = TypeVar("T")

Instance = tuple[int, int]
"""NVML's ids of a partition: of its GPU instance and its compute instance."""

_OF_ALL_CALLS = (DriverNotLoaded, GpuLost, NvmlTimeout, SessionLost)
"""What says that no other call would be answered either."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What a GPU answered; None for what it did not. Partitions that did not answer are left out."""

    memory: MemoryUse | None = None
    utilisation: Utilisation | None = None
    power_milliwatts: int | None = None
    power_limit_milliwatts: int | None = None
    temperature_celsius: int | None = None
    processes: tuple[ProcessUse, ...] | None = None
    busy: tuple[ProcessBusy, ...] | None = None
    partitions: Mapping[Instance, MemoryUse] = field(default_factory=dict)
    partition_busy: Mapping[Instance, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to ask a GPU besides what every GPU is asked.

    ``partitions`` are those that claims have alone, ``processes`` is whether to list processes, and ``busy``
    whether processes tell shares apart.
    """

    partitions: frozenset[Instance] = frozenset()
    processes: bool = False
    busy: bool = False


def reading_of(wanted: Wanted) -> Callable[[NvmlDevice, Watch], GpuReading]:
    """The job that reads a GPU.

    A call that fails by itself leaves out what it would have told. It raises NvmlCallFailed for a GPU that is
    lost or hangs, and where there is no session.
    """

    def job(device: NvmlDevice, watch: Watch) -> GpuReading:
        def told(name: str, call: Callable[[], T]) -> T | None:
            try:
                return watch(name, call)
            except _OF_ALL_CALLS:
                raise
            except NvmlCallFailed:
                return None

        memory: dict[Instance, MemoryUse] = {}
        busy: dict[Instance, float] = {}
        for instance in sorted(wanted.partitions):
            used = told("partition_memory_use", partial(device.partition_memory_use, *instance))
            if used is not None:
                memory[instance] = used
            part = told("partition_utilisation", partial(device.partition_utilisation, instance[0]))
            if part is not None:
                busy[instance] = part
        return GpuReading(
            told("memory_use", device.memory_use),
            told("utilisation", device.utilisation),
            told("power_milliwatts", device.power_milliwatts),
            told("power_limit_milliwatts", device.power_limit_milliwatts),
            told("temperature_celsius", device.temperature_celsius),
            told("processes", device.processes) if wanted.processes else None,
            told("busy_processes", device.busy_processes) if wanted.busy else None,
            memory,
            busy,
        )

    return job
