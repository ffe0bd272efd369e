"""What NVML answers about the memory limits of control groups on a fake GPU."""

# ruff: noqa: D102 - the protocol of driver.nvml.memory_limits documents the calls

from __future__ import annotations

from dataclasses import replace

from driver.nvml.api import Code
from driver.nvml.memory_limits import NO_LIMIT_BYTES, Cgroup, MemoryLimits
from fakegpu.machine.cgroups import group_at, without_dead_groups
from fakegpu.machine.state import MachineState, with_gpu
from fakegpu.nvml.session import GpuHandle

MEMORY_CHANGES = frozenset({"set_memory_limits"})
"""The calls of this module that change a GPU."""

_FIRST_DRIVER = 615


def knows_limits(driver_version: str) -> bool:
    """Whether this version of the NVIDIA driver can limit the GPU memory of control groups."""
    return int(driver_version.partition(".")[0]) >= _FIRST_DRIVER


class FakeMemoryCalls(GpuHandle):
    """What FakeDevice answers about memory limits."""

    def set_memory_limits(self, cgroup: str, soft_bytes: int, hard_bytes: int) -> None:
        call = "set_memory_limits"
        state, gpu_bytes = self._enter_supported(call)
        limits = (soft_bytes, hard_bytes)
        too_large = [one for one in limits if one > gpu_bytes and one != NO_LIMIT_BYTES]
        if too_large or soft_bytes > hard_bytes:
            raise self._failure(call, Code.INVALID_ARGUMENT, f" for {cgroup}")
        group = self._group(call, state, cgroup)
        soft_bytes, hard_bytes = (state.accounting.counted(one, gpu_bytes) for one in limits)

        def edit(now: MachineState) -> MachineState:
            gpu = without_dead_groups(now, now.gpus[self._slot.pci])
            memory = gpu.memory.with_limits(group, soft_bytes, hard_bytes)
            return with_gpu(now, self._slot.pci, replace(gpu, memory=memory))

        self._session.change(call, self._slot.pci, edit)

    def memory_limits(self, cgroup: str) -> MemoryLimits:
        call = "memory_limits"
        state, _ = self._enter_supported(call)
        group = self._group(call, state, cgroup)
        memory = without_dead_groups(state, state.gpus[self._slot.pci]).memory
        found = memory.limits_of(group.path)
        if found is None:
            code = Code.NOT_SUPPORTED if state.accounting.silent else Code.NOT_FOUND
            raise self._failure(call, code, f" for {cgroup}")
        return MemoryLimits(found.soft_bytes, found.hard_bytes, memory.used_bytes(found))

    def _enter_supported(self, call: str) -> tuple[MachineState, int]:
        """Enter a call; returns the state and the GPU's memory in bytes if driver and GPU support limits."""
        state, gpu = self._enter(call)
        # An older library does not export the functions at all, so the binding finds no symbol.
        if not knows_limits(state.driver_version):
            raise self._failure(call, Code.FUNCTION_NOT_FOUND)
        product = self._spec.product
        if product.virtualization == "vgpu" or gpu.mig.enabled or product.memory_bytes is None:
            raise self._failure(call, Code.NOT_SUPPORTED)
        return state, product.memory_bytes

    def _group(self, call: str, state: MachineState, cgroup: str) -> Cgroup:
        """The group at a path; OPERATING_SYSTEM without one, since NVML opens the group's folder."""
        try:
            group = group_at(state, cgroup)
        except ValueError as error:
            raise self._failure(call, Code.INVALID_ARGUMENT, f" for {cgroup}") from error
        if group is None:
            raise self._failure(call, Code.OPERATING_SYSTEM, f" for {cgroup}")
        return group
