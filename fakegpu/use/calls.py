"""What NVML says of the use of a fake GPU."""

# ruff: noqa: D102 - the protocol of driver.nvml.use.calls documents the calls

from __future__ import annotations

from driver.nvml.api import Code
from driver.nvml.use.calls import MemoryUse, ProcessBusy, ProcessUse, Utilisation
from fakegpu.machine.cgroups import without_dead_groups
from fakegpu.machine.state import GpuState, MachineState
from fakegpu.nvml.session import GpuHandle

IDLE_CELSIUS = 31
# GPU performance monitoring (GPM) counts by GPU instance; Ampere has no utilisation of partitions.
_WITH_GPM = ("Hopper", "Blackwell")
# Part of the product's name -> most watts; the first that matches counts, so longer names come first.
_LIMIT_WATTS: tuple[tuple[str, int], ...] = (
    ("GB300", 1400), ("GB200", 1200), ("B300", 1100), ("B200", 1000), ("GH200", 900), ("H200", 700),
    ("H100 PCIe", 350), ("H100", 700), ("A100-SXM4", 400), ("A100", 300), ("A30", 165), ("L40S", 350),
    ("L4", 72), ("T4", 70), ("V100", 300), ("RTX PRO 6000", 600),
)  # fmt: skip
_UNKNOWN_WATTS = 300
_IDLE_DIVISOR = 8
"""An idle board draws its limit divided by this."""


class FakeUseCalls(GpuHandle):
    """What FakeDevice answers about its use."""

    def memory_use(self) -> MemoryUse:
        state, gpu = self._enter("memory_use")
        total = self._spec.product.memory_bytes
        if total is None:
            raise self._failure("memory_use", Code.NOT_SUPPORTED)
        reserved = gpu.use.reserved_bytes
        if reserved is None:
            reserved = self._spec.product.reserved_bytes
        used = gpu.use.used_bytes
        if used is None:
            used = sum(one.memory_bytes or 0 for one in _processes(state, gpu))
            used += _unlisted_bytes(state, gpu)
        return MemoryUse(total, min(used, total - reserved), reserved)

    def partition_memory_use(self, gpu_instance: int, compute_instance: int) -> MemoryUse:
        call = "partition_memory_use"
        state, gpu = self._enter(call)
        instance, catalogue = gpu.mig.instance(gpu_instance), self._spec.product.mig
        if catalogue is None or instance is None or instance.compute_instance(compute_instance) is None:
            raise self._failure(call, Code.NOT_FOUND, f" GPU instance {gpu_instance}")
        # Compute instances share the memory of their GPU instance: NVML reports the use of all for each.
        said = [gpu.use.partition(gpu_instance, one.id).used_bytes for one in instance.compute_instances]
        of_processes = sum(
            one.memory_bytes or 0 for one in _processes(state, gpu) if one.gpu_instance == gpu_instance
        )
        used = sum(one or 0 for one in said) or of_processes
        total = catalogue.profile(instance.profile_id).memory_bytes
        return MemoryUse(total, min(used, total), 0)

    def utilisation(self) -> Utilisation:
        gpu = self._enter("utilisation")[1]
        # In MIG mode NVML counts use by partition only.
        if gpu.mig.enabled:
            raise self._failure("utilisation", Code.NOT_SUPPORTED)
        return Utilisation(gpu.use.compute, gpu.use.memory)

    def partition_utilisation(self, gpu_instance: int) -> float:
        call = "partition_utilisation"
        gpu = self._enter_outside_guest(call)
        if self._spec.product.architecture not in _WITH_GPM:
            raise self._failure(call, Code.NOT_SUPPORTED)
        instance = gpu.mig.instance(gpu_instance)
        if instance is None:
            raise self._failure(call, Code.NOT_FOUND, f" GPU instance {gpu_instance}")
        # GPM metrics are differences between two samples, so the first sample gives none.
        if self._session.is_first_sample(self._slot.pci, gpu_instance):
            raise self._failure(call, Code.NOT_SUPPORTED)
        inside = [gpu.use.partition(gpu_instance, one.id).compute for one in instance.compute_instances]
        return min(1.0, sum(inside) / max(len(inside), 1))

    def power_milliwatts(self) -> int:
        drawn = self._enter_outside_guest("power_milliwatts").use.power_milliwatts
        return _limit_milliwatts(self._spec.product.name) // _IDLE_DIVISOR if drawn is None else drawn

    def power_limit_milliwatts(self) -> int:
        self._enter_outside_guest("power_limit_milliwatts")
        return _limit_milliwatts(self._spec.product.name)

    def temperature_celsius(self) -> int:
        celsius = self._enter_outside_guest("temperature_celsius").use.temperature_celsius
        return IDLE_CELSIUS if celsius is None else celsius

    def processes(self) -> tuple[ProcessUse, ...]:
        return _processes(*self._enter("processes"))

    def busy_processes(self) -> tuple[ProcessBusy, ...]:
        state, gpu = self._enter("busy_processes")
        if gpu.mig.enabled:
            raise self._failure("busy_processes", Code.NOT_SUPPORTED)
        pids = {one.pid for one in _processes(state, gpu)}
        found = (ProcessBusy(one.pid, one.compute) for one in gpu.use.processes if one.compute)
        return tuple(sorted((one for one in found if one.pid in pids), key=lambda one: one.pid))

    def _enter_outside_guest(self, call: str) -> GpuState:
        """Enter a call that a vGPU guest answers with NOT_SUPPORTED, since it is about the whole board."""
        gpu = self._enter(call)[1]
        if self._spec.product.virtualization == "vgpu":
            raise self._failure(call, Code.NOT_SUPPORTED)
        return gpu


def _processes(state: MachineState, gpu: GpuState) -> tuple[ProcessUse, ...]:
    """The processes on the GPU and its partitions: those that a test has set, and CUDA clients."""
    found = [ProcessUse(pid, gpu.use.process(pid).memory_bytes) for pid in gpu.process_ids]
    found += [
        ProcessUse(one.process_id, gpu.use.process(one.process_id).memory_bytes,
                   one.gpu_instance_id, one.compute_instance_id)
        for one in gpu.mig.processes()
    ]  # fmt: skip
    clients: dict[tuple[int, int | None, int | None], int] = {}
    for client in without_dead_groups(state, gpu).memory.clients:
        if client.process_id is not None:
            place = (client.process_id, client.gpu_instance, client.compute_instance)
            clients[place] = clients.get(place, 0) + client.allocated_bytes
    found += [ProcessUse(pid, allocated, *place) for (pid, *place), allocated in clients.items()]
    return tuple(sorted(found, key=lambda one: (one.pid, one.gpu_instance or 0, one.compute_instance or 0)))


def _unlisted_bytes(state: MachineState, gpu: GpuState) -> int:
    """The memory of CUDA clients that NVML does not list as processes, in bytes."""
    clients = without_dead_groups(state, gpu).memory.clients
    return sum(client.allocated_bytes for client in clients if client.process_id is None)


def _limit_milliwatts(product: str) -> int:
    """The power limit of the product's boards; the numbers are those of NVIDIA's data sheets."""
    return next((watts for part, watts in _LIMIT_WATTS if part in product), _UNKNOWN_WATTS) * 1000
