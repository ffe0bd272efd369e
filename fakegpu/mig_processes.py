"""Who computes on a MIG device of a fake machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from driver.errors import ConfigError
from fakegpu.mig_state import mig_uuid
from fakegpu.state import with_gpu

if TYPE_CHECKING:
    from fakegpu.spec import MachineSpec
    from fakegpu.state import MachineState


def with_mig_processes(
    spec: MachineSpec, state: MachineState, uuid: str, pids: tuple[int, ...]
) -> MachineState:
    """The state with these processes on the MIG device of a UUID; raises ConfigError where there is none."""
    for pci, gpu in state.gpus.items():
        parent = spec.board_uuid(pci, gpu.board)
        for gi in gpu.mig.instances:
            if any(mig_uuid(parent, gi.id, ci.id) == uuid for ci in gi.compute_instances):
                inside = tuple(
                    replace(ci, process_ids=pids) if mig_uuid(parent, gi.id, ci.id) == uuid else ci
                    for ci in gi.compute_instances
                )
                mig = gpu.mig.with_instance(gi.id, replace(gi, compute_instances=inside))
                return with_gpu(state, pci, replace(gpu, mig=mig))
    raise ConfigError(f"the machine {spec.name} has no MIG device {uuid}", "create it first")
