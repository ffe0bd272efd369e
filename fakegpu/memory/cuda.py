"""CUDA clients of a fake GPU: processes in control groups that allocate its memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from driver.nvml.pci_address import PciAddress
from fakegpu.machine.cgroups import CGROUP_ROOT, group_at, without_dead_groups
from fakegpu.machine.holds import Hold
from fakegpu.machine.spec import MachineSpec
from fakegpu.machine.state import MachineState, StateStore, with_gpu
from fakegpu.memory.state import CudaClient, GpuMemory


class CudaFailed(Exception):
    """A CUDA call failed; the message says why."""


class OutOfMemory(CudaFailed):
    """CUDA_ERROR_OUT_OF_MEMORY: the limit of the client's group, or the device's memory, is too small."""


class ContextLost(CudaFailed):
    """The CUDA context no longer exists: the client ended, its group was removed, or the GPU was reset."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a context is: a whole GPU, or one compute instance of it."""

    pci: PciAddress
    gpu_instance: int | None = None
    compute_instance: int | None = None


class FakeCudaClient:
    """A CUDA context of one process, until ``end`` or until its control group is removed.

    The machine's state holds it, so every process that opened the machine sees its memory.
    """

    def __init__(
        self, spec: MachineSpec, store: StateStore, place: Place, number: int, life: Hold | None
    ) -> None:
        self._spec = spec
        self._store = store
        self._place = place
        self._number = number
        self._life = life

    @classmethod
    def begin(
        cls,
        spec: MachineSpec,
        store: StateStore,
        place: Place,
        cgroup: str = CGROUP_ROOT,
        process_id: int | None = None,
        *,
        dies: bool = False,
    ) -> FakeCudaClient:
        """Make a context in a control group; raises CudaFailed without the group, the device or the driver.

        One that ``dies`` ends with this process at the latest.
        """
        # At random, so that processes need not agree on the next number.
        number = int.from_bytes(os.urandom(6))
        # Held before the client is in the state, so that nobody takes it for dead.
        life = store.holds.hold(_life(number)) if dies else None

        def edit(state: MachineState) -> MachineState:
            group = group_at(state, cgroup)
            if group is None:
                raise CudaFailed(f"there is no control group {cgroup}")
            where = (place.gpu_instance, place.compute_instance)
            client = CudaClient(number, group.path, group.inode, 0, process_id, *where, dies)
            return _with_memory(state, place.pci, _memory(state, place).with_client(client))

        store.change(edit)
        return cls(spec, store, place, number, life)

    @property
    def allocated_bytes(self) -> int:
        """How much memory it has now; 0 once its context no longer exists."""
        state = self._store.read()
        found = without_dead_groups(state, state.gpus[self._place.pci]).memory.client(self._number)
        return 0 if found is None else found.allocated_bytes

    @property
    def free_bytes(self) -> int:
        """How much more it could allocate now; raises ContextLost or CudaFailed."""
        state = self._store.read()
        memory = _memory(state, self._place)
        client = self._client(memory)
        free = device_bytes(self._spec, state, self._place) - memory.neighbors_bytes(client)
        limits = memory.limits_of(client.cgroup)
        if limits is not None:
            free = min(free, limits.hard_bytes - memory.used_bytes(limits))
        return max(free, 0)

    def allocate(self, more_bytes: int) -> None:
        """Allocate so much more; raises OutOfMemory, ContextLost or CudaFailed, and then nothing changes."""
        _check_not_negative(more_bytes)

        def edit(state: MachineState, memory: GpuMemory, client: CudaClient) -> GpuMemory:
            all_bytes = device_bytes(self._spec, state, self._place)
            if refusal := memory.refusal(client, more_bytes, all_bytes):
                raise OutOfMemory(f"on {self._place.pci}, {refusal}")
            return memory.with_client(replace(client, allocated_bytes=client.allocated_bytes + more_bytes))

        self._change(edit)

    def free(self, less_bytes: int) -> None:
        """Free so much; raises ContextLost, CudaFailed, or ValueError if the client has less."""
        _check_not_negative(less_bytes)

        def edit(_: MachineState, memory: GpuMemory, client: CudaClient) -> GpuMemory:
            if less_bytes > client.allocated_bytes:
                raise ValueError(f"it has {client.allocated_bytes} bytes, and cannot free {less_bytes}")
            return memory.with_client(replace(client, allocated_bytes=client.allocated_bytes - less_bytes))

        self._change(edit)

    def end(self) -> None:
        """End the process, which frees its memory. A second call does nothing."""
        pci = self._place.pci

        def edit(state: MachineState) -> MachineState:
            gpu = without_dead_groups(state, state.gpus[pci])
            return _with_memory(state, pci, gpu.memory.without_client(self._number))

        self._store.change(edit)
        if self._life is not None:
            self._life.release()
            self._store.holds.forget(_life(self._number))

    def _client(self, memory: GpuMemory) -> CudaClient:
        client = memory.client(self._number)
        if client is None:
            raise ContextLost(f"the context on {self._place.pci} is gone")
        return client

    def _change(self, edit: Callable[[MachineState, GpuMemory, CudaClient], GpuMemory]) -> None:
        def edit_state(state: MachineState) -> MachineState:
            memory = _memory(state, self._place)
            return _with_memory(state, self._place.pci, edit(state, memory, self._client(memory)))

        self._store.change(edit_state)


def end_dead_clients(store: StateStore, state: MachineState | None = None) -> MachineState:
    """End the clients whose processes have ended without a word; returns the state without them.

    The NVIDIA driver notices the end of a process as the kernel closes its device nodes.
    """
    state = store.read() if state is None else state
    dying = {one.number for gpu in state.gpus.values() for one in gpu.memory.clients if one.dies}
    dead = {number for number in dying if not store.holds.is_held(_life(number))}
    if not dead:
        return state

    def edit(state: MachineState) -> MachineState:
        for pci, gpu in state.gpus.items():
            kept = tuple(one for one in gpu.memory.clients if one.number not in dead)
            if kept != gpu.memory.clients:
                state = _with_memory(state, pci, replace(gpu.memory, clients=kept))
        return state

    state = store.change(edit)
    for number in dead:
        store.holds.forget(_life(number))
    return state


def device_bytes(spec: MachineSpec, state: MachineState, place: Place) -> int:
    """The memory of a GPU or a GPU instance that CUDA clients can have."""
    product = spec.product
    if place.gpu_instance is None:
        return (product.memory_bytes or 0) - product.reserved_bytes
    instance = state.gpus[place.pci].mig.instance(place.gpu_instance)
    if instance is None or product.mig is None:
        return 0
    return product.mig.profile(instance.profile_id).memory_bytes


def _life(number: int) -> str:
    """The name that the process of a client holds for as long as it lives."""
    return f"cuda-{number}"


def _check_not_negative(size_bytes: int) -> None:
    if size_bytes < 0:
        raise ValueError(f"{size_bytes} bytes cannot be allocated")


def _memory(state: MachineState, place: Place) -> GpuMemory:
    """The memory of a GPU that CUDA can use, as it is now; raises CudaFailed."""
    gpu = without_dead_groups(state, state.gpus[place.pci])
    if not state.driver_loaded or not gpu.present or gpu.lost:
        raise CudaFailed(f"the GPU {place.pci} cannot be used")
    if place.gpu_instance is None or place.compute_instance is None:
        is_there = not gpu.mig.enabled
    else:
        instance = gpu.mig.instance(place.gpu_instance)
        is_there = instance is not None and instance.compute_instance(place.compute_instance) is not None
    if not is_there:
        raise CudaFailed(f"the GPU {place.pci} cannot be used as {_words(place)}")
    return gpu.memory


def _words(place: Place) -> str:
    if place.gpu_instance is None:
        return "a whole"
    return f"GPU instance {place.gpu_instance}, compute instance {place.compute_instance}"


def _with_memory(state: MachineState, pci: PciAddress, memory: GpuMemory) -> MachineState:
    return with_gpu(state, pci, replace(state.gpus[pci], memory=memory))
