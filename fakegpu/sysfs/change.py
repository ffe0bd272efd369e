"""Changes a fake machine and its kernel in one turn, and makes the files and device nodes follow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fakegpu.memory.groups import living
from fakegpu.nvml.partitions_shown import show_partitions
from fakegpu.sysfs.binding import Node
from fakegpu.sysfs.device_files import follow
from fakegpu.sysfs.tree import apply, change_of
from fakegpu.sysfs.vgpus import without_lost_vgpus
from fakegpu.sysfs.writes import settled

if TYPE_CHECKING:
    from collections.abc import Callable

    from driver.nvml.pci_address import PciAddress
    from fakegpu.machine.spec import MachineSpec
    from fakegpu.machine.state import MachineState, StateStore
    from fakegpu.sysfs.state import KernelState


def node_now(spec: MachineSpec, store: StateStore) -> Node:
    """The machine and its kernel at this moment."""
    return _node(spec, store, store.read(), store.read_kernel(spec))


def change_node(spec: MachineSpec, store: StateStore, edit: Callable[[Node], Node]) -> Node:
    """Replace the node by an edit of it, in which every write that waits and can be done is done first.

    The files below all roots that follow the machine are changed in the same turn. What ``edit`` raises
    leaves all as it is.
    """
    found: list[Node] = []

    def both(machine: MachineState, kernel: KernelState) -> tuple[MachineState, KernelState]:
        before = _node(spec, store, machine, kernel)
        after = without_lost_vgpus(edit(settled(before)))
        found.append(after)
        _change_files(before, after)
        return after.machine, after.kernel

    store.change_both(spec, both)
    return found[-1]


def settle(spec: MachineSpec, store: StateStore) -> None:
    """Do the writes that have waited for somebody who has now let go of a function."""
    if store.read_kernel(spec).waiting:
        change_node(spec, store, lambda node: node)


def _node(spec: MachineSpec, store: StateStore, machine: MachineState, kernel: KernelState) -> Node:
    def in_use(pci: PciAddress) -> bool:
        gpu = machine.gpus.get(pci)
        by_processes = gpu is not None and bool(
            gpu.process_ids or gpu.mig.processes() or living(machine, gpu).memory.clients
        )
        return by_processes or store.holds.is_held(pci)

    return Node(spec, machine, kernel, in_use)


def _change_files(before: Node, after: Node) -> None:
    is_host = after.spec.product.vgpu is not None
    if after.kernel is not before.kernel or (is_host and after.machine is not before.machine):
        change = change_of(before, after)
        for root in _there(after.kernel.sysfs_roots):
            apply(root, change)
    if after.kernel is not before.kernel or after.machine is not before.machine:
        for root in _there(after.kernel.device_roots):
            follow(root, before, after)
        show_partitions(after.spec, before.machine, after.machine)


def _there(roots: tuple[str, ...]) -> list[Path]:
    """The roots that this process sees: a container may see them elsewhere."""
    return [root for root in map(Path, roots) if root.is_dir()]
