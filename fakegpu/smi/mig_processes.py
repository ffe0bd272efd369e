"""Who computes on a MIG device of a fake machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from driver.errors import ConfigError
from fakegpu.machine.mig_state import mig_uuid
from fakegpu.machine.state import with_gpu

if TYPE_CHECKING:
    from driver.nvml.pci_address import PciAddress
    from fakegpu.machine.mig_state import ComputeInstanceState
    from fakegpu.machine.spec import MachineSpec
    from fakegpu.machine.state import MachineState


def mig_place(spec: MachineSpec, state: MachineState, uuid: str) -> tuple[PciAddress, int, int]:
    """The GPU of a MIG device, and the ids of its instances; raises ConfigError where there is none."""
    for pci, gpu in state.gpus.items():
        parent = spec.board_uuid(pci, gpu.board)
        for gi in gpu.mig.instances:
            for ci in gi.compute_instances:
                if mig_uuid(parent, gi.id, ci.id) == uuid:
                    return pci, gi.id, ci.id
    raise ConfigError(f"the machine {spec.name} has no MIG device {uuid}", "create it first")


def with_mig_processes(
    spec: MachineSpec, state: MachineState, uuid: str, pids: tuple[int, ...]
) -> MachineState:
    """The state with these processes on the MIG device of a UUID; raises ConfigError where there is none."""
    pci, gpu_instance, compute_instance = mig_place(spec, state, uuid)
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
