"""CUDA clients of a fake GPU: processes in control groups that allocate its memory."""

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
    """A CUDA call failed; the message says why."""


class OutOfMemory(CudaFailed):
    """CUDA_ERROR_OUT_OF_MEMORY: the limit of the client's group, or the GPU's memory, is too small."""


class ContextLost(CudaFailed):
    """The CUDA context no longer exists: the client ended, its group was removed, or the GPU was reset."""


class FakeCudaClient:
    """A CUDA context of one process, until ``end`` or until its control group is removed.

    The machine's state holds it, so every process that opened the machine sees its memory.
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
        """Make a context in a control group; raises CudaFailed without the group, the GPU or the driver."""
        # At random, so that processes need not agree on the next number.
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
        """How much memory it has now; 0 once its context no longer exists."""
        state = self._store.read()
        found = without_dead_groups(state, state.gpus[self._pci]).memory.client(self._number)
        return 0 if found is None else found.allocated_bytes

    def allocate(self, more_bytes: int) -> None:
        """Allocate so much more; raises OutOfMemory, ContextLost or CudaFailed, and then nothing changes."""
        _check_not_negative(more_bytes)

        def edit(memory: GpuMemory, client: CudaClient) -> GpuMemory:
            product = self._spec.product
            free_for_clients = (product.memory_bytes or 0) - product.reserved_bytes
            if refusal := memory.refusal(client, more_bytes, free_for_clients):
                raise OutOfMemory(f"on {self._pci}, {refusal}")
            return memory.with_client(replace(client, allocated_bytes=client.allocated_bytes + more_bytes))

        self._change(edit)

    def free(self, less_bytes: int) -> None:
        """Free so much; raises ContextLost, CudaFailed, or ValueError if the client has less."""
        _check_not_negative(less_bytes)

        def edit(memory: GpuMemory, client: CudaClient) -> GpuMemory:
            if less_bytes > client.allocated_bytes:
                raise ValueError(f"it has {client.allocated_bytes} bytes, and cannot free {less_bytes}")
            return memory.with_client(replace(client, allocated_bytes=client.allocated_bytes - less_bytes))

        self._change(edit)

    def end(self) -> None:
        """End the process, which frees its memory. A second call does nothing."""

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


def _check_not_negative(size_bytes: int) -> None:
    if size_bytes < 0:
        raise ValueError(f"{size_bytes} bytes cannot be allocated")


def _memory(state: MachineState, pci: PciAddress) -> GpuMemory:
    """The memory of a GPU that CUDA can use, as it is now; raises CudaFailed."""
    gpu = without_dead_groups(state, state.gpus[pci])
    if not state.driver_loaded or not gpu.present or gpu.lost or gpu.mig.enabled:
        raise CudaFailed(f"the GPU {pci} cannot be used as a whole")
    return gpu.memory


def _with_memory(state: MachineState, pci: PciAddress, memory: GpuMemory) -> MachineState:
    return with_gpu(state, pci, replace(state.gpus[pci], memory=memory))
