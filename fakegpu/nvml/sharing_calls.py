"""What a fake GPU says about its modes, and about the time-slice that only nvidia-smi sets."""

# ruff: noqa: D102 - the protocol of driver.nvml.api documents the calls of the modes

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from driver.nvml.api import Code, failure
from driver.nvml.modes import ComputeMode
from fakegpu.machine.spec import MachineSpec, Slot
from fakegpu.machine.state import GpuState, MachineState, with_gpu
from fakegpu.nvml.session import FAKE_GPU_CALLS, FakeSession

SHARING_CHANGES = frozenset({"set_compute_mode", "set_persistence_mode", "set_time_slice"})
"""The calls of this module that change a GPU."""

_VOLTA = (7, 0)
_LONGEST_TIME_SLICE = 3


class FakeSharingCalls:
    """What FakeDevice answers about sharing, and about persistence mode."""

    _session: FakeSession
    _spec: MachineSpec
    _slot: Slot
    _number: int

    def compute_mode(self) -> ComputeMode | None:
        return self._session.gpu_call("compute_mode", self._slot.pci, self._number)[1].compute_mode

    def set_compute_mode(self, mode: ComputeMode) -> None:
        _, gpu = self._session.gpu_call("set_compute_mode", self._slot.pci, self._number)
        if self._spec.product.virtualization == "vgpu" or gpu.mig.enabled:
            raise self._cannot("set_compute_mode", Code.NOT_SUPPORTED)
        self._set("set_compute_mode", lambda now: replace(now, compute_mode=mode))

    def persistence_mode(self) -> bool:
        return self._session.gpu_call("persistence_mode", self._slot.pci, self._number)[1].persistence

    def set_persistence_mode(self, on: bool) -> None:
        self._session.gpu_call("set_persistence_mode", self._slot.pci, self._number)
        self._set("set_persistence_mode", lambda now: replace(now, persistence=on))

    def time_slice(self) -> int:
        """0 default, 1 short, 2 medium, 3 long; NotSupported before Volta and in a vGPU guest."""
        _, gpu = self._session.gpu_call("time_slice", self._slot.pci, self._number)
        self._check_time_slices("time_slice")
        return gpu.time_slice

    def set_time_slice(self, number: int) -> None:
        """Set it until the driver is loaded again; INVALID_ARGUMENT for a number that there is not."""
        self._session.gpu_call("set_time_slice", self._slot.pci, self._number)
        self._check_time_slices("set_time_slice")
        if number not in range(_LONGEST_TIME_SLICE + 1):
            raise self._cannot("set_time_slice", Code.INVALID_ARGUMENT)
        self._set("set_time_slice", lambda now: replace(now, time_slice=number))

    def _check_time_slices(self, call: str) -> None:
        product = self._spec.product
        if product.compute_capability < _VOLTA or product.virtualization == "vgpu":
            raise self._cannot(call, Code.NOT_SUPPORTED)

    def _set(self, call: str, edit: Callable[[GpuState], GpuState]) -> None:
        def edit_state(state: MachineState) -> MachineState:
            return with_gpu(state, self._slot.pci, edit(state.gpus[self._slot.pci]))

        self._session.change(call, self._slot.pci, edit_state)

    def _cannot(self, call: str, code: Code) -> Exception:
        return failure(FAKE_GPU_CALLS[call], code, str(self._slot.pci))
