"""What a fake GPU says about its modes, and about the time-slice that only nvidia-smi sets."""

# ruff: noqa: D102 - the protocol of driver.nvml.api documents the calls of the modes

from __future__ import annotations

from dataclasses import replace

from driver.nvml.api import Code
from driver.nvml.modes import ComputeMode
from fakegpu.machine.state import GpuState
from fakegpu.nvml.session import GpuHandle

SHARING_CHANGES = frozenset({"set_compute_mode", "set_persistence_mode", "set_time_slice"})
"""The calls of this module that change a GPU."""

_VOLTA = (7, 0)
_LONGEST_TIME_SLICE = 3


class FakeSharingCalls(GpuHandle):
    """What FakeDevice answers about sharing, and about persistence mode."""

    def compute_mode(self) -> ComputeMode | None:
        return self._enter("compute_mode")[1].compute_mode

    def set_compute_mode(self, mode: ComputeMode) -> None:
        _, gpu = self._enter("set_compute_mode")
        if self._spec.product.virtualization == "vgpu" or gpu.mig.enabled:
            raise self._failure("set_compute_mode", Code.NOT_SUPPORTED)
        self._change("set_compute_mode", lambda now: replace(now, compute_mode=mode))

    def persistence_mode(self) -> bool:
        return self._enter("persistence_mode")[1].persistence

    def set_persistence_mode(self, on: bool) -> None:
        self._enter("set_persistence_mode")
        self._change("set_persistence_mode", lambda now: replace(now, persistence=on))

    def time_slice(self) -> int:
        """0 default, 1 short, 2 medium, 3 long; NotSupported before Volta and in a vGPU guest."""
        return self._enter_time_slice_call("time_slice").time_slice

    def set_time_slice(self, number: int) -> None:
        """Set it until the driver is loaded again; INVALID_ARGUMENT for any other number than 0 to 3."""
        self._enter_time_slice_call("set_time_slice")
        if number not in range(_LONGEST_TIME_SLICE + 1):
            raise self._failure("set_time_slice", Code.INVALID_ARGUMENT)
        self._change("set_time_slice", lambda now: replace(now, time_slice=number))

    def _enter_time_slice_call(self, call: str) -> GpuState:
        _, gpu = self._enter(call)
        product = self._spec.product
        if product.compute_capability < _VOLTA or product.virtualization == "vgpu":
            raise self._failure(call, Code.NOT_SUPPORTED)
        return gpu
