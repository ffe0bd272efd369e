"""The calls of the real NVML about use; they return plain values.

The functions of the binding come from driver.nvml.real, the only module that imports it.
"""

# ruff: noqa: D102 - the protocol of driver.nvml.use.calls documents these methods

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from driver.nvml.api import GPU_CALLS, Code, NvmlCallFailed, failure
from driver.nvml.gpu_handle import SUCCESS, GpuHandle, handle_number, instance_id
from driver.nvml.use.calls import MemoryUse, ProcessBusy, ProcessUse, Utilisation

# NVML_TEMPERATURE_GPU: the GPU's die. Time stamps of samples are in microseconds.
_GPU_SENSOR = 0
_LATELY_MICROSECONDS = 1_000_000
# NVML_GPM_METRICS_GET_VERSION and NVML_GPM_METRIC_GRAPHICS_UTIL of nvml.h. NVML gives percent.
_METRICS_VERSION, _GRAPHICS_UTILISATION = 1, 1


class GpmSamples:
    """The last sample of each GPU instance, with which the next one is compared."""

    def __init__(self) -> None:
        self._samples: dict[tuple[int, int], Any] = {}

    def swap(self, key: tuple[int, int], new: Any) -> Any:
        """Keep the new sample and return the one before it; None for the first."""
        old = self._samples.get(key)
        self._samples[key] = new
        return old

    def take_all(self) -> list[Any]:
        """Return all samples and forget them."""
        samples = list(self._samples.values())
        self._samples.clear()
        return samples


class RealUseCalls(GpuHandle):
    """The calls of RealDevice about use."""

    _samples: GpmSamples

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
        # NVML allocates samples and the caller has to free each, also on the ways that fail.
        new = self._ask(method, inside, self._pynvml.nvmlGpmSampleAlloc)
        try:
            self._ask(method, inside, self._pynvml.nvmlGpmMigSampleGet, self._handle, gpu_instance, new)
        except NvmlCallFailed:
            self._free(method, new)
            raise
        old = self._samples.swap((handle_number(self._handle), gpu_instance), new)
        if old is None:
            raise failure(GPU_CALLS[method], Code.NOT_SUPPORTED, f"{self._subject}{inside}")
        try:
            return self._busy_between(method, inside, old, new)
        finally:
            self._free(method, old)

    def _free(self, method: str, sample: Any) -> None:
        # What cannot be freed goes with the session; the answer is good all the same.
        with suppress(NvmlCallFailed):
            self._ask(method, "", self._pynvml.nvmlGpmSampleFree, sample)

    def power_milliwatts(self) -> int:
        return int(self._get("power_milliwatts", self._pynvml.nvmlDeviceGetPowerUsage))

    def power_limit_milliwatts(self) -> int:
        return int(self._get("power_limit_milliwatts", self._pynvml.nvmlDeviceGetEnforcedPowerLimit))

    def temperature_celsius(self) -> int:
        return int(self._get("temperature_celsius", self._pynvml.nvmlDeviceGetTemperature, _GPU_SENSOR))

    def processes(self) -> tuple[ProcessUse, ...]:
        found: dict[tuple[int, int, int], int | None] = {}
        for one in self._running_processes("processes"):
            # A process that computes and draws is in both lists: keep it once, with the larger figure.
            place = (int(one.pid), int(one.gpuInstanceId), int(one.computeInstanceId))
            known = [size for size in (found.get(place), one.usedGpuMemory) if size is not None]
            found[place] = max(map(int, known), default=None)
        return tuple(
            ProcessUse(pid, size, instance_id(gi), instance_id(ci))
            for (pid, gi, ci), size in sorted(found.items(), key=_whole_gpu_first)
        )

    def busy_processes(self) -> tuple[ProcessBusy, ...]:
        try:
            samples = self._get("busy_processes", self._pynvml.nvmlDeviceGetProcessUtilization, 0)
        except NvmlCallFailed as error:
            # Without any sample the binding raises an "error" with the code of success.
            if error.code in (SUCCESS, Code.NOT_FOUND):
                return ()
            raise
        return tuple(_busy(samples))

    def _memory(self, method: str, inside: str, handle: Any) -> MemoryUse:
        # Version 1 of the struct counts the reserved memory as used.
        version = self._pynvml.nvmlMemory_v2
        info = self._ask(method, inside, self._pynvml.nvmlDeviceGetMemoryInfo, handle, version)
        return MemoryUse(int(info.total), int(info.used), int(info.reserved))

    def _mig_handle(self, method: str, gpu_instance: int, compute_instance: int) -> Any:
        """The handle of the MIG device with these ids; None if there is none."""
        # NVML finds MIG devices by index only, not by the ids of their instances.
        for _, handle in self._mig_handles(method):
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

    def _busy_between(self, method: str, inside: str, old: Any, new: Any) -> float:
        """How busy the instance was between two samples."""
        query = self._pynvml.c_nvmlGpmMetricsGet_t()
        query.version, query.numMetrics = _METRICS_VERSION, 1
        query.sample1, query.sample2 = old, new
        query.metrics[0].metricId = _GRAPHICS_UTILISATION
        self._ask(method, inside, self._pynvml.nvmlGpmMetricsGet, query)
        metric = query.metrics[0]
        if int(metric.nvmlReturn) != SUCCESS:
            raise failure(GPU_CALLS[method], int(metric.nvmlReturn), f"{self._subject}{inside}")
        return min(max(float(metric.value) / 100, 0.0), 1.0)


def _whole_gpu_first(entry: tuple[tuple[int, int, int], int | None]) -> tuple[int, int, int]:
    """By pid, then by place; NVML's number for "no instance" is the largest there is and would sort last."""
    pid, gpu_instance, compute_instance = entry[0]
    return pid, instance_id(gpu_instance) or 0, instance_id(compute_instance) or 0


def _busy(samples: Iterable[Any]) -> Iterator[ProcessBusy]:
    """The mean of each process over the second before the newest sample."""
    read = [(int(one.timeStamp), int(one.pid), int(one.smUtil)) for one in samples]
    # NVML keeps older samples, too. A mean over all of them would lag behind.
    newest = max((time for time, _, _ in read), default=0)
    found: dict[int, list[int]] = defaultdict(list)
    for time, pid, percent in read:
        # An entry with pid 0 is of no process.
        if pid and newest - time < _LATELY_MICROSECONDS:
            found[pid].append(percent)
    for pid in sorted(found):
        mean = sum(found[pid]) / len(found[pid]) / 100
        if mean:
            yield ProcessBusy(pid, min(mean, 1.0))
