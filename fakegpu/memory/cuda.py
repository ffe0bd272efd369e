"""CUDA clients of a fake GPU: processes in control groups that allocate its memory, hostile ones too."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from driver.nvml.pci_address import PciAddress
from fakegpu.machine.cgroups import group_at, without_dead_groups
from fakegpu.machine.spec import MachineSpec
from fakegpu.machine.state import MachineState, StateStore, with_gpu
from fakegpu.memory.state import CudaClient, GpuMemory


class CudaFailed(Exception):
    """CUDA does not do what it was asked; the message says why."""


class OutOfMemory(CudaFailed):
    """CUDA_ERROR_OUT_OF_MEMORY: the client's group may not have so much, or the GPU has not."""


class ContextLost(CudaFailed):
    """The client's context is gone: it has ended, its group was removed, or the GPU was reset."""


class FakeCudaClient:
    """A CUDA context of one process. It lives till ``end``, or with its control group.

    It is in the machine's state, so that all processes see what it has.
    """

    def __init__(self, spec: MachineSpec, store: StateStore, pci: PciAddress, number: int) -> None:
        self._spec = spec
        self._store = store
        self._pci = pci
        self._number = number

    @classmethod
    def begin(
        cls, spec: MachineSpec, store: StateStore, pci: PciAddress, cgroup: str, process_id: int | None
    ) -> FakeCudaClient:
        """Make a context in a group; raises CudaFailed where there is no group, no GPU or no driver."""
        number = int.from_bytes(os.urandom(6))

        def edit(state: MachineState) -> MachineState:
            group = group_at(state, cgroup)
            if group is None:
                raise CudaFailed(f"there is no control group {cgroup}")
            client = CudaClient(number, group.path, group.inode, 0, process_id)
            return _with_memory(state, pci, _memory(state, pci).with_client(client))

        store.change(edit)
        return cls(spec, store, pci, number)

    @property
    def allocated_bytes(self) -> int:
        """What it has now; 0 once its context is gone."""
        state = self._store.read()
        found = without_dead_groups(state, state.gpus[self._pci]).memory.client(self._number)
        return 0 if found is None else found.allocated_bytes

    def allocate(self, more_bytes: int) -> None:
        """Have so much more memory; raises OutOfMemory, ContextLost, CudaFailed, and then has what it had."""

        _check(more_bytes)

        def edit(memory: GpuMemory, client: CudaClient) -> GpuMemory:
            product = self._spec.product
            free_for_clients = (product.memory_bytes or 0) - product.reserved_bytes
            if refusal := memory.refusal(client, more_bytes, free_for_clients):
                raise OutOfMemory(f"on {self._pci}, {refusal}")
            return memory.with_client(replace(client, allocated_bytes=client.allocated_bytes + more_bytes))

        self._change(edit)

    def free(self, less_bytes: int) -> None:
        """Give so much back; raises ContextLost, CudaFailed, ValueError where it has less."""

        _check(less_bytes)

        def edit(memory: GpuMemory, client: CudaClient) -> GpuMemory:
            if less_bytes > client.allocated_bytes:
                raise ValueError(f"it has {client.allocated_bytes} bytes, and would free {less_bytes}")
            return memory.with_client(replace(client, allocated_bytes=client.allocated_bytes - less_bytes))

        self._change(edit)

    def end(self) -> None:
        """End the process: all that it had is free. Once more does nothing."""

        def edit(state: MachineState) -> MachineState:
            gpu = without_dead_groups(state, state.gpus[self._pci])
            return _with_memory(state, self._pci, gpu.memory.without_client(self._number))

        self._store.change(edit)

    def _change(self, edit: Callable[[GpuMemory, CudaClient], GpuMemory]) -> None:
        def edit_state(state: MachineState) -> MachineState:
            memory = _memory(state, self._pci)
            client = memory.client(self._number)
            if client is None:
                raise ContextLost(f"the context on {self._pci} is gone")
            return _with_memory(state, self._pci, edit(memory, client))

        self._store.change(edit_state)


def _check(size_bytes: int) -> None:
    if size_bytes < 0:
        raise ValueError(f"{size_bytes} bytes are no memory")


def _memory(state: MachineState, pci: PciAddress) -> GpuMemory:
    """The memory of a GPU that CUDA can use, as it is now; raises CudaFailed."""
    gpu = without_dead_groups(state, state.gpus[pci])
    if not state.driver_loaded or not gpu.present or gpu.lost or gpu.mig.enabled:
        raise CudaFailed(f"the GPU {pci} cannot be used as a whole")
    return gpu.memory


def _with_memory(state: MachineState, pci: PciAddress, memory: GpuMemory) -> MachineState:
    return with_gpu(state, pci, replace(state.gpus[pci], memory=memory))
