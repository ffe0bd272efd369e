"""Reads from NVML how much of a GPU and of its partitions is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from driver.nvml import api
from driver.nvml.deadline import Watch
from driver.nvml.use.calls import MemoryUse, ProcessBusy, ProcessUse, Utilisation

T = TypeVar("T")

Instance = tuple[int, int]
"""NVML's ids of a partition: of its GPU instance and its compute instance."""

_OF_ALL_CALLS = (api.DriverNotLoaded, api.GpuLost, api.NvmlTimeout, api.SessionLost)
"""Errors after which no other call would be answered either."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What was read from a GPU; None for a value that could not be read. Such partitions are left out."""

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
    """What to read from a GPU besides the values that are read from every GPU."""

    # The partitions that claims have alone.
    partitions: frozenset[Instance] = frozenset()
    # Whether to list processes.
    processes: bool = False
    # Whether to read how busy each process keeps the GPU, which is needed for shares.
    busy: bool = False


def reading_of(wanted: Wanted) -> Callable[[api.NvmlDevice, Watch], GpuReading]:
    """The job that reads a GPU.

    A single call that fails leaves its value out. The job raises NvmlCallFailed if the GPU is lost or hangs,
    or if there is no NVML session.
    """

    def job(device: api.NvmlDevice, watch: Watch) -> GpuReading:
        def value(name: str, call: Callable[[], T]) -> T | None:
            try:
                return watch(name, call)
            except _OF_ALL_CALLS:
                raise
            # Many values are not supported by some GPU, by MIG mode or by a driver.
            except api.NvmlCallFailed:
                return None

        memory: dict[Instance, MemoryUse] = {}
        busy: dict[Instance, float] = {}
        for instance in sorted(wanted.partitions):
            used = value("partition_memory_use", partial(device.partition_memory_use, *instance))
            if used is not None:
                memory[instance] = used
            # NVML counts the utilisation of a GPU instance as a whole.
            part = value("partition_utilisation", partial(device.partition_utilisation, instance[0]))
            if part is not None:
                busy[instance] = part
        return GpuReading(
            value("memory_use", device.memory_use),
            value("utilisation", device.utilisation),
            value("power_milliwatts", device.power_milliwatts),
            value("power_limit_milliwatts", device.power_limit_milliwatts),
            value("temperature_celsius", device.temperature_celsius),
            value("processes", device.processes) if wanted.processes else None,
            value("busy_processes", device.busy_processes) if wanted.busy else None,
            memory,
            busy,
        )

    return job
