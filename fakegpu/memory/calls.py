"""What NVML answers about the memory limits of control groups on a fake GPU."""

# ruff: noqa: D102 - the protocol of driver.nvml.memory_limits documents the calls

from __future__ import annotations

from dataclasses import replace

from driver.nvml.api import GPU_CALLS, Code, failure
from driver.nvml.memory_limits import NO_LIMIT_BYTES, Cgroup, MemoryLimits
from fakegpu.machine.cgroups import group_at, without_dead_groups
from fakegpu.machine.spec import MachineSpec, Slot
from fakegpu.machine.state import MachineState, with_gpu
from fakegpu.nvml.session import FakeSession

MEMORY_CHANGES = frozenset({"set_memory_limits"})
"""The calls of this module that change a GPU."""

_FIRST_DRIVER = 615
_NONE = {False: Code.NOT_FOUND, True: Code.NOT_SUPPORTED}


def knows_limits(driver_version: str) -> bool:
    """Whether an NVIDIA driver is of a release that holds control groups to memory limits."""
    return int(driver_version.partition(".")[0]) >= _FIRST_DRIVER


class FakeMemoryCalls:
    """What FakeDevice answers about memory limits."""

    _session: FakeSession
    _spec: MachineSpec
    _slot: Slot
    _number: int

    def set_memory_limits(self, cgroup: str, soft_bytes: int, hard_bytes: int) -> None:
        call = "set_memory_limits"
        state, gpu_bytes = self._supported(call)
        limits = (soft_bytes, hard_bytes)
        too_large = [one for one in limits if one > gpu_bytes and one != NO_LIMIT_BYTES]
        if too_large or soft_bytes > hard_bytes:
            raise self._failed(call, Code.INVALID_ARGUMENT, cgroup)
        group = self._group(call, state, cgroup)
        soft_bytes, hard_bytes = (state.accounting.counted(one, gpu_bytes) for one in limits)

        def edit(now: MachineState) -> MachineState:
            gpu = without_dead_groups(now, now.gpus[self._slot.pci])
            return with_gpu(
                now,
                self._slot.pci,
                replace(gpu, memory=gpu.memory.with_limits(group, soft_bytes, hard_bytes)),
            )

        self._session.change(call, self._slot.pci, edit)

    def memory_limits(self, cgroup: str) -> MemoryLimits:
        call = "memory_limits"
        state, _ = self._supported(call)
        group = self._group(call, state, cgroup)
        memory = without_dead_groups(state, state.gpus[self._slot.pci]).memory
        found = memory.holder(group.path)
        if found is None:
            raise self._failed(call, _NONE[state.accounting.silent], cgroup)
        return MemoryLimits(found.soft_bytes, found.hard_bytes, memory.used_bytes(found))

    def _supported(self, call: str) -> tuple[MachineState, int]:
        """The state and the GPU's memory, where driver and GPU have limits."""
        state, gpu = self._session.gpu_call(call, self._slot.pci, self._number)
        if not knows_limits(state.driver_version):
            raise self._failed(call, Code.FUNCTION_NOT_FOUND)
        product = self._spec.product
        if product.virtualization == "vgpu" or gpu.mig.enabled or product.memory_bytes is None:
            raise self._failed(call, Code.NOT_SUPPORTED)
        return state, product.memory_bytes

    def _group(self, call: str, state: MachineState, cgroup: str) -> Cgroup:
        """The group at a path; NVML opens its folder."""
        try:
            group = group_at(state, cgroup)
        except ValueError as error:
            raise self._failed(call, Code.INVALID_ARGUMENT, cgroup) from error
        if group is None:
            raise self._failed(call, Code.OPERATING_SYSTEM, cgroup)
        return group

    def _failed(self, call: str, code: Code, cgroup: str = "") -> Exception:
        of = f"{self._slot.pci} for {cgroup}" if cgroup else str(self._slot.pci)
        return failure(GPU_CALLS[call], code, of)
