"""Changes of a machine together with the files that show its partitions below its driver roots."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from driver.nvml.pci_address import PciAddress
from fakegpu.cuda.compiled import rewrite_devices
from fakegpu.machine.capabilities import update_capabilities
from fakegpu.machine.spec import MachineSpec
from fakegpu.machine.state import MachineState, StateStore
from fakegpu.smi.listing import rewrite_list


def change_with_partitions(
    spec: MachineSpec, store: StateStore, edit: Callable[[MachineState], MachineState]
) -> MachineState:
    """Change the state, and in the same step the files that show partitions below all driver roots."""

    def both(state: MachineState) -> MachineState:
        new = edit(state)
        show_partitions(spec, state, new)
        return new

    return store.change(both)


def show_partitions(spec: MachineSpec, before: MachineState, after: MachineState) -> None:
    """Make capability files, nvidia-smi's list and libcuda below all driver roots show the new state."""
    update_capabilities(before, after)
    if any(_listed(before, pci) != _listed(after, pci) for pci in after.gpus):
        for root in filter(Path.is_dir, map(Path, after.driver_roots)):
            rewrite_list(root, spec, after)
            rewrite_devices(root, spec, after)


def _listed(state: MachineState, pci: PciAddress) -> object:
    """Everything that nvidia-smi's lines about a GPU and libcuda's depend on."""
    gpu = state.gpus[pci]
    instances = tuple(one for one in gpu.mig.instances if one.compute_instances)
    return gpu.minor, gpu.board, gpu.present, gpu.mig.enabled, instances
