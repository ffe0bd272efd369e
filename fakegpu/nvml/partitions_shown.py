"""Changes of a machine with which the partitions that its driver roots show change in the same turn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from driver.nvml.pci_address import PciAddress
from fakegpu.machine.capabilities import update_capabilities
from fakegpu.machine.spec import MachineSpec
from fakegpu.machine.state import MachineState, StateStore
from fakegpu.smi.listing import list_anew


def change_with_partitions(
    spec: MachineSpec, store: StateStore, edit: Callable[[MachineState], MachineState]
) -> MachineState:
    """Change the state, and in the same turn what all driver roots that follow it show of partitions."""

    def both(state: MachineState) -> MachineState:
        new = edit(state)
        show_partitions(spec, state, new)
        return new

    return store.change(both)


def show_partitions(spec: MachineSpec, before: MachineState, after: MachineState) -> None:
    """Make capability files and nvidia-smi's list those of the state after, in all roots that follow it."""
    update_capabilities(before, after)
    if any(_listed(before, pci) != _listed(after, pci) for pci in after.gpus):
        for root in filter(Path.is_dir, map(Path, after.driver_roots)):
            list_anew(root, spec, after)


def _listed(state: MachineState, pci: PciAddress) -> object:
    """What nvidia-smi's lines about a GPU depend on."""
    gpu = state.gpus[pci]
    instances = tuple(one for one in gpu.mig.instances if one.compute_instances)
    return gpu.minor, gpu.board, gpu.present, instances
