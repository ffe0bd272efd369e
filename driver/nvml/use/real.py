"""The calls of the real NVML about use: plain values out.

The functions of the binding come from driver.nvml.real, the only module that imports it.
"""

# ruff: noqa: D102 - the protocol of driver.nvml.use.calls documents these methods

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, ClassVar

from driver.nvml.api import GPU_CALLS, Code, NotSupported, NvmlCallFailed, failure
from driver.nvml.real_mig import handle_number
from driver.nvml.use.calls import MemoryUse, ProcessBusy, ProcessUse, Utilisation

_SUCCESS = 0
_GPU_SENSOR = 0
_NO_INSTANCE = 0xFFFFFFFF
_EMPTY_PLACE = (Code.NOT_FOUND, Code.INVALID_ARGUMENT)
_LATELY_MICROSECONDS = 1_000_000
_METRICS_VERSION, _GRAPHICS_UTILISATION = 1, 1


class GpmSamples:
    """The last sample of each GPU instance, with which the next one is compared; NVML owns their memory."""

    def __init__(self) -> None:
        self._samples: dict[tuple[int, int], Any] = {}

    def exchanged(self, key: tuple[int, int], new: Any) -> Any:
        """The sample of before, None for the first one; the new one is kept."""
        old = self._samples.get(key)
        self._samples[key] = new
        return old

    def taken(self) -> list[Any]:
        """All samples, which are kept no longer: the session that they belong to ends."""
        samples = list(self._samples.values())
        self._samples.clear()
        return samples


class RealUseCalls(ABC):
    """What RealDevice asks about use."""

    _pynvml: ClassVar[Any]
    _handle: Any
    _subject: str
    _samples: GpmSamples

    @abstractmethod
    def _get(self, method: str, function: Callable[..., Any], *arguments: object) -> Any:
        """Call a function on the GPU's handle; errors name the GPU and the method's C function."""

    @abstractmethod
    def _ask(self, method: str, inside: str, function: Callable[..., Any], *arguments: object) -> Any:
        """Call a function on other handles; ``inside`` names the part of the GPU in errors."""

    def memory_use(self) -> MemoryUse:
        return self._memory("memory_use", "", self._handle)

    def partition_memory_use(self, gpu_instance: int, compute_instance: int) -> MemoryUse:
        method = "partition_memory_use"
        inside = f" GPU instance {gpu_instance} compute instance {compute_instance}"
        handle = self._mig_handle(method, gpu_instance, compute_instance)
        if handle is None:
            raise failure(GPU_CALLS[method], Code.NOT_FOUND, f"{self._subject}{inside}")
        return self._memory(method, inside, handle)

    def utilisation(self) -> Utilisation:
        rates = self._get("utilisation", self._pynvml.nvmlDeviceGetUtilizationRates)
        return Utilisation(int(rates.gpu) / 100, int(rates.memory) / 100)

    def partition_utilisation(self, gpu_instance: int) -> float:
        method, inside = "partition_utilisation", f" GPU instance {gpu_instance}"
        support = self._get(method, self._pynvml.nvmlGpmQueryDeviceSupport)
        if not support.isSupportedDevice:
            raise failure(GPU_CALLS[method], Code.NOT_SUPPORTED, self._subject)
        new = self._ask(method, inside, self._pynvml.nvmlGpmSampleAlloc)
        try:
            self._ask(method, inside, self._pynvml.nvmlGpmMigSampleGet, self._handle, gpu_instance, new)
        except NvmlCallFailed:
            self._ask(method, inside, self._pynvml.nvmlGpmSampleFree, new)
            raise
        old = self._samples.exchanged((handle_number(self._handle), gpu_instance), new)
        if old is None:
            raise failure(GPU_CALLS[method], Code.NOT_SUPPORTED, f"{self._subject}{inside}")
        try:
            return self._compared(method, inside, old, new)
        finally:
            self._ask(method, inside, self._pynvml.nvmlGpmSampleFree, old)

    def power_milliwatts(self) -> int:
        return int(self._get("power_milliwatts", self._pynvml.nvmlDeviceGetPowerUsage))

    def power_limit_milliwatts(self) -> int:
        return int(self._get("power_limit_milliwatts", self._pynvml.nvmlDeviceGetEnforcedPowerLimit))

    def temperature_celsius(self) -> int:
        return int(self._get("temperature_celsius", self._pynvml.nvmlDeviceGetTemperature, _GPU_SENSOR))

    def processes(self) -> tuple[ProcessUse, ...]:
        compute = self._get("processes", self._pynvml.nvmlDeviceGetComputeRunningProcesses_v3)
        try:
            graphics = self._get("processes", self._pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3)
        except NotSupported:
            graphics = []
        found: dict[tuple[int, int, int], int | None] = {}
        for one in chain(compute, graphics):
            place = (int(one.pid), int(one.gpuInstanceId), int(one.computeInstanceId))
            known = [size for size in (found.get(place), one.usedGpuMemory) if size is not None]
            found[place] = max(map(int, known), default=None)
        return tuple(
            ProcessUse(pid, size, _instance(gi), _instance(ci))
            for (pid, gi, ci), size in sorted(found.items(), key=_whole_first)
        )

    def busy_processes(self) -> tuple[ProcessBusy, ...]:
        try:
            samples = self._get("busy_processes", self._pynvml.nvmlDeviceGetProcessUtilization, 0)
        except NvmlCallFailed as error:
            # The binding raises an "error" of success where there is no sample.
            if error.code in (_SUCCESS, Code.NOT_FOUND):
                return ()
            raise
        return tuple(_busy(samples))

    def _memory(self, method: str, inside: str, handle: Any) -> MemoryUse:
        version = self._pynvml.nvmlMemory_v2
        told = self._ask(method, inside, self._pynvml.nvmlDeviceGetMemoryInfo, handle, version)
        return MemoryUse(int(told.total), int(told.used), int(told.reserved))

    def _mig_handle(self, method: str, gpu_instance: int, compute_instance: int) -> Any:
        """The handle of a MIG device; None where there is none of these ids."""
        for handle in self._mig_handles(method):
            place = tuple(
                int(self._ask(method, " MIG device", function, handle))
                for function in (
                    self._pynvml.nvmlDeviceGetGpuInstanceId,
                    self._pynvml.nvmlDeviceGetComputeInstanceId,
                )
            )
            if place == (gpu_instance, compute_instance):
                return handle
        return None

    def _mig_handles(self, method: str) -> Iterator[Any]:
        try:
            count = int(self._get(method, self._pynvml.nvmlDeviceGetMaxMigDeviceCount))
        except NotSupported:
            return
        for index in range(count):
            try:
                yield self._get(method, self._pynvml.nvmlDeviceGetMigDeviceHandleByIndex, index)
            except NvmlCallFailed as error:
                if error.code not in _EMPTY_PLACE:
                    raise

    def _compared(self, method: str, inside: str, old: Any, new: Any) -> float:
        """How busy the instance was between two samples."""
        asked = self._pynvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = _METRICS_VERSION, 1
        asked.sample1, asked.sample2 = old, new
        asked.metrics[0].metricId = _GRAPHICS_UTILISATION
        self._ask(method, inside, self._pynvml.nvmlGpmMetricsGet, asked)
        told = asked.metrics[0]
        if int(told.nvmlReturn) != _SUCCESS:
            raise failure(GPU_CALLS[method], int(told.nvmlReturn), f"{self._subject}{inside}")
        return min(max(float(told.value) / 100, 0.0), 1.0)


def _instance(number: int) -> int | None:
    return None if number == _NO_INSTANCE else number


def _whole_first(entry: tuple[tuple[int, int, int], int | None]) -> tuple[int, int, int]:
    pid, gpu_instance, compute_instance = entry[0]
    return pid, _instance(gpu_instance) or 0, _instance(compute_instance) or 0


def _busy(samples: Iterable[Any]) -> Iterator[ProcessBusy]:
    """The mean of each process over the second before the newest sample: NVML keeps older ones, too."""
    told = [(int(one.timeStamp), int(one.pid), int(one.smUtil)) for one in samples]
    newest = max((time for time, _, _ in told), default=0)
    found: dict[int, list[int]] = defaultdict(list)
    for time, pid, percent in told:
        if pid and newest - time < _LATELY_MICROSECONDS:
            found[pid].append(percent)
    for pid in sorted(found):
        mean = sum(found[pid]) / len(found[pid]) / 100
        if mean:
            yield ProcessBusy(pid, min(mean, 1.0))
