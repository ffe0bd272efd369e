"""Changes a fake machine and its kernel in one step, together with their files and device nodes.

Below the machine's driver roots are the device nodes and files of /proc that appear and vanish with drivers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from driver.nvml.pci_address import PciAddress
from fakegpu.cuda.compiled import rewrite_devices
from fakegpu.machine.capabilities import null_device
from fakegpu.machine.cgroups import without_dead_groups
from fakegpu.machine.spec import MachineSpec
from fakegpu.machine.state import MachineState, StateStore
from fakegpu.nvml.partitions_shown import show_partitions
from fakegpu.smi.listing import rewrite_list
from fakegpu.sysfs.binding import Node
from fakegpu.sysfs.state import KernelState
from fakegpu.sysfs.tree import apply, change_of, drm_names, vfio_nodes
from fakegpu.sysfs.vgpus import without_lost_vgpus
from fakegpu.sysfs.writes import settled


def node_now(spec: MachineSpec, store: StateStore) -> Node:
    """The machine and its kernel at this moment."""
    return _node(spec, store, store.read(), store.read_kernel(spec))


def change_node(spec: MachineSpec, store: StateStore, edit: Callable[[Node], Node]) -> Node:
    """Replace the node by an edit of it, after all waiting writes that can be done now.

    The files below all roots of the machine change in the same step. If ``edit`` raises, nothing changes.
    """
    found: list[Node] = []

    def both(machine: MachineState, kernel: KernelState) -> tuple[MachineState, KernelState]:
        before = _node(spec, store, machine, kernel)
        after = without_lost_vgpus(edit(settled(before)))
        found.append(after)
        # Under the lock of the state, so that the files of two changes cannot mix.
        _change_files(before, after)
        return after.machine, after.kernel

    store.change_both(spec, both)
    return found[-1]


def settle(spec: MachineSpec, store: StateStore) -> None:
    """Do the writes that waited until a process closed a function."""
    if store.read_kernel(spec).waiting:
        change_node(spec, store, lambda node: node)


def _node(spec: MachineSpec, store: StateStore, machine: MachineState, kernel: KernelState) -> Node:
    def in_use(pci: PciAddress) -> bool:
        # Processes that a test has put on the GPU, CUDA clients, and everything that holds the function open.
        gpu = machine.gpus.get(pci)
        by_processes = gpu is not None and bool(
            gpu.process_ids or gpu.mig.processes() or without_dead_groups(machine, gpu).memory.clients
        )
        return by_processes or store.holds.is_held(pci)

    return Node(spec, machine, kernel, in_use)


def _change_files(before: Node, after: Node) -> None:
    # On a vGPU host sysfs shows the vGPU types that still fit, which depends on MIG instances as well.
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
    """The roots that exist for this process: in a container they may be somewhere else."""
    return [root for root in map(Path, roots) if root.is_dir()]


def _nodes_of(node: Node) -> dict[str, str]:
    """Path below /dev -> target if it is a link, empty for a device: nodes of GPUs, DRM and vfio."""
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
    """The files of the NVIDIA driver in /proc, one for each GPU: path below the root -> text."""
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
    """Make all nodes and files below a root."""
    for name, leads_to in _nodes_of(node).items():
        _make_node(root, name, leads_to)
    for name, text in _information_of(node).items():
        _write(root / name, text)


def _update_device_files(root: Path, before: Node, after: Node) -> None:
    """Remove and make the device nodes and files below a root that have changed."""
    old, new = _nodes_of(before), _nodes_of(after)
    for name in old.keys() - new.keys():
        (root / "dev" / name).unlink(missing_ok=True)
    for name in new.keys() - old.keys():
        _make_node(root, name, new[name])
    was, now = _information_of(before), _information_of(after)
    for name in was.keys() - now.keys():
        (root / name).unlink(missing_ok=True)
        # The driver has a folder for each GPU, which goes with the file in it.
        if (root / name).parent.is_dir():
            (root / name).parent.rmdir()
    for name, text in now.items():
        if was.get(name) != text:
            _write(root / name, text)
    # A GPU gets another minor only when the NVIDIA driver is bound to it again.
    if was.keys() != now.keys():
        rewrite_list(root, after.spec, after.machine)
        rewrite_devices(root, after.spec, after.machine)


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
