"""Changes a fake machine and its kernel in one turn, and updates the files and device nodes.

The device nodes and files of /proc that come and go with drivers lie below the machine's driver roots.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from driver.nvml.pci_address import PciAddress
from fakegpu.machine.capabilities import null_device
from fakegpu.machine.cgroups import without_dead_groups
from fakegpu.machine.spec import MachineSpec
from fakegpu.machine.state import MachineState, StateStore
from fakegpu.nvml.partitions_shown import show_partitions
from fakegpu.smi.listing import list_anew
from fakegpu.sysfs.binding import Node
from fakegpu.sysfs.state import KernelState
from fakegpu.sysfs.tree import apply, change_of, drm_names, vfio_nodes
from fakegpu.sysfs.vgpus import without_lost_vgpus
from fakegpu.sysfs.writes import settled


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
            gpu.process_ids or gpu.mig.processes() or without_dead_groups(machine, gpu).memory.clients
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
            _update_device_files(root, before, after)
        show_partitions(after.spec, before.machine, after.machine)


def _there(roots: tuple[str, ...]) -> list[Path]:
    """The roots that this process sees: a container may see them elsewhere."""
    return [root for root in map(Path, roots) if root.is_dir()]


def _nodes_of(node: Node) -> dict[str, str]:
    """Node below /dev -> where it is a link to, empty for a device: GPUs', DRM's, and those of vfio."""
    found = dict.fromkeys(vfio_nodes(node), "")
    for pci, gpu in node.machine.gpus.items():
        if not node.kernel.has_nvidia(pci):
            continue
        found[f"nvidia{gpu.minor}"] = ""
        for name, kind in zip(drm_names(node.spec)[pci], ("card", "render"), strict=True):
            found[f"dri/{name}"] = ""
            found[f"dri/by-path/pci-{pci}-{kind}"] = f"../{name}"
    return found


def _information_of(node: Node) -> dict[str, str]:
    """The file for each GPU that the NVIDIA driver has in /proc, below the root -> its text."""
    return {
        f"proc/driver/nvidia/gpus/{pci}/information": (
            f"Model: \t\t {node.spec.product.name}\n"
            f"GPU UUID: \t {node.spec.board_uuid(pci, gpu.board)}\n"
            f"Bus Type: \t PCIe\nBus Location: \t {pci}\nDevice Minor: \t {gpu.minor}\n"
        )
        for pci, gpu in node.machine.gpus.items()
        if node.kernel.has_nvidia(pci)
    }


def lay_device_files(root: Path, node: Node) -> None:
    """Make all nodes and files of now below a root."""
    for name, leads_to in _nodes_of(node).items():
        _make_node(root, name, leads_to)
    for name, text in _information_of(node).items():
        _write(root / name, text)


def _update_device_files(root: Path, before: Node, after: Node) -> None:
    """Remove and make the device nodes that are other below a root."""
    old, new = _nodes_of(before), _nodes_of(after)
    for name in old.keys() - new.keys():
        (root / "dev" / name).unlink(missing_ok=True)
    for name in new.keys() - old.keys():
        _make_node(root, name, new[name])
    was, now = _information_of(before), _information_of(after)
    for name in was.keys() - now.keys():
        (root / name).unlink(missing_ok=True)
        if (root / name).parent.is_dir():
            (root / name).parent.rmdir()
    for name, text in now.items():
        if was.get(name) != text:
            _write(root / name, text)
    if was.keys() != now.keys():  # a minor moves only while another driver has the GPU
        list_anew(root, after.spec, after.machine)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _make_node(root: Path, name: str, leads_to: str) -> None:
    """Make one node below /dev: a device, or a link."""
    place = root / "dev" / name
    if not leads_to:
        null_device(place)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(leads_to)
