"""Sets how much of a fake machine's GPUs is used, and by which processes, for tests and demos."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from driver.errors import ConfigError
from driver.nvml.pci_address import PciAddress
from fakegpu.machine.mig_state import ComputeInstanceState, mig_uuid
from fakegpu.machine.spec import MachineSpec
from fakegpu.machine.state import MachineState, StateStore, with_gpu
from fakegpu.use.state import GpuUse, ProcessState

_MIG = "MIG-"


class PretendedUse:
    """The part of FakeMachine about use. A GPU is its index, its UUID, or its address."""

    spec: MachineSpec
    _store: StateStore

    def pci(self, gpu: int | str | PciAddress) -> PciAddress:
        """The address of a GPU of the machine."""
        raise NotImplementedError

    def settle(self) -> None:
        """Let the kernel do what has waited for somebody who let go of a function."""
        raise NotImplementedError

    def use(
        self,
        gpu: int | str | PciAddress,
        *,
        compute: float | None = None,
        memory: float | None = None,
        used_bytes: int | None = None,
        reserved_bytes: int | None = None,
        power_milliwatts: int | None = None,
        temperature_celsius: int | None = None,
        processes: Mapping[int, ProcessState | int] | None = None,
    ) -> None:
        """Say how much of a GPU, or of the MIG device of a UUID, is used; what is left out stays as it is.

        ``compute`` and ``memory`` go from 0 to 1. ``processes`` are all that there are from now on, by their
        ids, each with its bytes of memory or all that is said of it; without ``used_bytes`` their memory is
        what is used. ``reserved_bytes`` is what the NVIDIA driver keeps for itself. A MIG device has neither
        that nor ``memory``, power and temperature of its own.
        """
        said = {
            "compute": compute, "memory": memory, "used_bytes": used_bytes,
            "reserved_bytes": reserved_bytes, "power_milliwatts": power_milliwatts,
            "temperature_celsius": temperature_celsius,
        }  # fmt: skip
        known = {name: value for name, value in said.items() if value is not None}
        if isinstance(gpu, str) and gpu.startswith(_MIG):
            self._use_partition(gpu, known)
        else:
            self._change_use(self.pci(gpu), lambda use: replace(use, **known))  # type: ignore[arg-type]  # its own names
        if processes is not None:
            self._run(gpu, processes)

    def set_processes(self, gpu: int | str | PciAddress, process_ids: tuple[int, ...]) -> None:
        """Say which processes run on a GPU, or on the MIG device of a UUID: they hold it until they end."""
        pids = tuple(sorted(process_ids))
        if isinstance(gpu, str) and gpu.startswith(_MIG):
            self._store.change(lambda state: _with_mig_processes(self.spec, state, gpu, pids))
        else:
            pci = self.pci(gpu)
            self._store.change(lambda state: with_gpu(state, pci, replace(state.gpus[pci], process_ids=pids)))
        self.settle()

    def add_process(self, gpu: PciAddress, process_id: int) -> None:
        """Say that one more process holds a GPU."""
        self._change_processes(gpu, lambda pids: {*pids, process_id})

    def end_process(self, gpu: PciAddress, process_id: int) -> None:
        """Say that a process holds a GPU no longer."""
        self._change_processes(gpu, lambda pids: pids - {process_id})

    def _run(self, gpu: int | str | PciAddress, processes: Mapping[int, ProcessState | int]) -> None:
        on_partition = isinstance(gpu, str) and gpu.startswith(_MIG)
        pci = _mig_place(self.spec, self._store.read(), str(gpu))[0] if on_partition else self.pci(gpu)
        new = tuple(
            one if isinstance(one, ProcessState) else ProcessState(pid, one) for pid, one in processes.items()
        )
        self._change_use(pci, lambda use: use.with_processes(new))
        self.set_processes(gpu, tuple(processes))

    def _use_partition(self, uuid: str, known: Mapping[str, float | int]) -> None:
        if unknown := set(known) - {"compute", "used_bytes"}:
            raise ConfigError(f"a MIG device has no {', '.join(sorted(unknown))}", "say it of the whole GPU")
        pci, gpu_instance, compute_instance = _mig_place(self.spec, self._store.read(), uuid)

        def edit(use: GpuUse) -> GpuUse:
            old = use.partition(gpu_instance, compute_instance)
            return use.with_partition(replace(old, **known))  # type: ignore[arg-type]  # its own names

        self._change_use(pci, edit)

    def _change_use(self, pci: PciAddress, edit: Callable[[GpuUse], GpuUse]) -> None:
        def edit_state(state: MachineState) -> MachineState:
            old = state.gpus[pci]
            return with_gpu(state, pci, replace(old, use=edit(old.use)))

        self._store.change(edit_state)

    def _change_processes(self, pci: PciAddress, edit_pids: Callable[[set[int]], set[int]]) -> None:
        def edit(state: MachineState) -> MachineState:
            pids = tuple(sorted(edit_pids(set(state.gpus[pci].process_ids))))
            return with_gpu(state, pci, replace(state.gpus[pci], process_ids=pids))

        self._store.change(edit)
        self.settle()


def _mig_place(spec: MachineSpec, state: MachineState, uuid: str) -> tuple[PciAddress, int, int]:
    """The GPU of a MIG device, and the ids of its instances; raises ConfigError where there is none."""
    for pci, gpu in state.gpus.items():
        parent = spec.board_uuid(pci, gpu.board)
        for gi in gpu.mig.instances:
            for ci in gi.compute_instances:
                if mig_uuid(parent, gi.id, ci.id) == uuid:
                    return pci, gi.id, ci.id
    raise ConfigError(f"the machine {spec.name} has no MIG device {uuid}", "create it first")


def _with_mig_processes(
    spec: MachineSpec, state: MachineState, uuid: str, pids: tuple[int, ...]
) -> MachineState:
    """The state with these processes on the MIG device of a UUID; raises ConfigError where there is none."""
    pci, gpu_instance, compute_instance = _mig_place(spec, state, uuid)
    gpu = state.gpus[pci]
    instances = tuple(
        replace(gi, compute_instances=_with_processes(gi.compute_instances, compute_instance, pids))
        if gi.id == gpu_instance
        else gi
        for gi in gpu.mig.instances
    )
    return with_gpu(state, pci, replace(gpu, mig=replace(gpu.mig, instances=instances)))


def _with_processes(
    inside: tuple[ComputeInstanceState, ...], compute_instance: int, pids: tuple[int, ...]
) -> tuple[ComputeInstanceState, ...]:
    return tuple(replace(ci, process_ids=pids) if ci.id == compute_instance else ci for ci in inside)
