"""Sets how much of a fake machine's GPUs is used, and by which processes, for tests and demos."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from driver.errors import ConfigError
from driver.nvml.pci_address import PciAddress
from fakegpu.machine.controls import Controls, GpuSelector
from fakegpu.machine.mig_state import ComputeInstanceState, mig_uuid
from fakegpu.machine.spec import MachineSpec
from fakegpu.machine.state import GpuState, MachineState
from fakegpu.use.state import GpuUse, ProcessState


class PretendedUse(Controls):
    """The part of FakeMachine about use. A GPU is given as in GpuSelector, or as the UUID of a MIG device."""

    def use(
        self,
        gpu: GpuSelector,
        *,
        compute: float | None = None,
        memory: float | None = None,
        used_bytes: int | None = None,
        reserved_bytes: int | None = None,
        power_milliwatts: int | None = None,
        temperature_celsius: int | None = None,
        processes: Mapping[int, ProcessState | int] | None = None,
    ) -> None:
        """Set how much of a GPU or MIG device is used; parameters that are left out change nothing.

        ``compute`` and ``memory`` go from 0 to 1. ``processes`` replace all processes: process id -> bytes of
        memory, or a ProcessState. Without ``used_bytes`` the memory of the processes counts as used.
        ``reserved_bytes`` is what the NVIDIA driver keeps for itself. A MIG device has no ``memory``,
        ``reserved_bytes``, power or temperature of its own; ConfigError for those.
        """
        said = {
            "compute": compute, "memory": memory, "used_bytes": used_bytes,
            "reserved_bytes": reserved_bytes, "power_milliwatts": power_milliwatts,
            "temperature_celsius": temperature_celsius,
        }  # fmt: skip
        known = {name: value for name, value in said.items() if value is not None}
        if _is_mig_device(gpu):
            self._use_partition(str(gpu), known)
        else:
            self._change_use(gpu, lambda use: replace(use, **known))  # type: ignore[arg-type]  # its own names
        if processes is not None:
            self._run(gpu, processes)

    def set_processes(self, gpu: GpuSelector, process_ids: tuple[int, ...]) -> None:
        """Set which processes run on a GPU or MIG device: they hold it open until they end."""
        pids = tuple(sorted(process_ids))
        if _is_mig_device(gpu):
            pci, gpu_instance, compute_instance = _mig_place(self.spec, self.state, str(gpu))
            self._change_gpu(pci, lambda old: _with_mig_processes(old, gpu_instance, compute_instance, pids))
        else:
            self._change_gpu(gpu, lambda old: replace(old, process_ids=pids))
        self.settle()

    def add_process(self, gpu: PciAddress, process_id: int) -> None:
        """Add a process that holds a GPU open."""
        self._change_processes(gpu, lambda pids: {*pids, process_id})

    def end_process(self, gpu: PciAddress, process_id: int) -> None:
        """End a process, so that it no longer holds a GPU open."""
        self._change_processes(gpu, lambda pids: pids - {process_id})

    def _run(self, gpu: GpuSelector, processes: Mapping[int, ProcessState | int]) -> None:
        pci = _mig_place(self.spec, self.state, str(gpu))[0] if _is_mig_device(gpu) else self.pci(gpu)
        new = tuple(
            one if isinstance(one, ProcessState) else ProcessState(pid, one) for pid, one in processes.items()
        )
        self._change_use(pci, lambda use: use.with_processes(new))
        self.set_processes(gpu, tuple(processes))

    def _use_partition(self, uuid: str, known: Mapping[str, float | int]) -> None:
        if unknown := set(known) - {"compute", "used_bytes"}:
            raise ConfigError(f"a MIG device has no {', '.join(sorted(unknown))}", "set it for the whole GPU")
        pci, gpu_instance, compute_instance = _mig_place(self.spec, self.state, uuid)

        def edit(use: GpuUse) -> GpuUse:
            old = use.partition(gpu_instance, compute_instance)
            return use.with_partition(replace(old, **known))  # type: ignore[arg-type]  # its own names

        self._change_use(pci, edit)

    def _change_use(self, gpu: GpuSelector, edit: Callable[[GpuUse], GpuUse]) -> None:
        self._change_gpu(gpu, lambda old: replace(old, use=edit(old.use)))

    def _change_processes(self, pci: PciAddress, edit: Callable[[set[int]], set[int]]) -> None:
        self._change_gpu(pci, lambda old: replace(old, process_ids=tuple(sorted(edit(set(old.process_ids))))))
        # The kernel may have waited for a process that has ended.
        self.settle()


def _is_mig_device(gpu: GpuSelector) -> bool:
    return isinstance(gpu, str) and gpu.startswith("MIG-")


def _mig_place(spec: MachineSpec, state: MachineState, uuid: str) -> tuple[PciAddress, int, int]:
    """The GPU of a MIG device and the ids of its instances; raises ConfigError for an unknown UUID."""
    for pci, gpu in state.gpus.items():
        parent = spec.board_uuid(pci, gpu.board)
        for gi in gpu.mig.instances:
            for ci in gi.compute_instances:
                if mig_uuid(parent, gi.id, ci.id) == uuid:
                    return pci, gi.id, ci.id
    raise ConfigError(f"the machine {spec.name} has no MIG device {uuid}", "create it first")


def _with_mig_processes(
    gpu: GpuState, gpu_instance: int, compute_instance: int, pids: tuple[int, ...]
) -> GpuState:
    """The GPU with these processes on one of its compute instances."""

    def edit(ci: ComputeInstanceState) -> ComputeInstanceState:
        return replace(ci, process_ids=pids) if ci.id == compute_instance else ci

    old = gpu.mig.instance(gpu_instance)
    if old is None:
        return gpu
    new = replace(old, compute_instances=tuple(map(edit, old.compute_instances)))
    return replace(gpu, mig=gpu.mig.with_instance(gpu_instance, new))
