"""The kinds of devices that this driver prepares; ``added`` adds one of somebody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from driver.hardware.inventory import Discovery
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.devices.host.gpu_nodes import GpuNodes, VfioNodes
from kubeletplugin.devices.host.kernel import Kernel
from kubeletplugin.devices.kinds.kind import HeldKind, HeldKinds
from kubeletplugin.devices.kinds.partition.held import HeldMade, HeldStatic
from kubeletplugin.devices.kinds.partition.making import Partitions
from kubeletplugin.devices.kinds.passthrough.hand_over import HandOver
from kubeletplugin.devices.kinds.passthrough.held import Bus, HeldPassthrough
from kubeletplugin.devices.kinds.unknown import HeldUnknown
from kubeletplugin.devices.kinds.vgpu.held import HeldVgpu
from kubeletplugin.devices.kinds.vgpu.making import Vgpus
from kubeletplugin.devices.kinds.whole import HeldWhole
from kubeletplugin.devices.vfio.binder import GroupBinder
from kubeletplugin.devices.vfio.function_files import Users
from kubeletplugin.kubelet.wire.controllers import Controllers


@dataclass(frozen=True, slots=True)
class NodePorts:
    """What a kind may need of the node."""

    discovery: Discovery
    # Finds the device nodes of GPUs and partitions.
    nodes: GpuNodes
    journal: Journal
    generation: Callable[[], str]
    # The rest is for PCI functions that go to virtual machines.
    sysfs_root: Path
    kernel: Kernel
    # Binds functions to other kernel drivers.
    binder: GroupBinder
    # Lists the processes that have a function open.
    users: Users
    # Finds the device nodes that open functions.
    vfio_nodes: VfioNodes
    # The node's controllers, which have GPUs open as well.
    controllers: Controllers


_ADDED: list[Callable[[NodePorts], HeldKind]] = []


@contextmanager
def added(make: Callable[[NodePorts], HeldKind]) -> Iterator[None]:
    """Nodes that are made within the block also have this kind, instead of one with the same word."""
    _ADDED.append(make)
    try:
        yield
    finally:
        _ADDED.remove(make)


def kinds_of(ports: NodePorts) -> HeldKinds:
    """The kinds of a node: whole GPUs, partitions by an admin or for claims, vGPUs, passthrough."""
    partitions = Partitions(ports.discovery)
    own = (
        HeldWhole(ports.discovery, ports.nodes, partitions.turn_off_for_whole),
        HeldStatic(partitions, ports.nodes),
        HeldMade(partitions, ports.nodes, ports.journal, ports.generation),
        HeldVgpu(
            ports.discovery,
            ports.sysfs_root,
            Vgpus(ports.sysfs_root, ports.kernel, ports.users),
            ports.vfio_nodes,
        ),
        HeldPassthrough(
            ports.discovery,
            Bus(ports.sysfs_root),
            ports.vfio_nodes,
            HandOver(ports.discovery, ports.controllers, ports.binder),
            ports.users,
        ),
    )
    return HeldKinds((*own, *(make(ports) for make in _ADDED)), HeldUnknown())
