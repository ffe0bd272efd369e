"""The kinds of devices that this driver prepares. Who connects a process may hand it others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from driver.hardware.inventory import Discovery
from kubeletplugin.host.gpu_nodes import GpuNodes
from kubeletplugin.host.kernel import Kernel
from kubeletplugin.journal.identity import Era
from kubeletplugin.journal.journal import Journal
from kubeletplugin.kinds.kind import HeldKind
from kubeletplugin.kinds.partition.made import HeldMade
from kubeletplugin.kinds.partition.making import Partitions
from kubeletplugin.kinds.partition.static import HeldStatic
from kubeletplugin.kinds.passthrough.hand_over import HandOver
from kubeletplugin.kinds.passthrough.held import HeldPassthrough
from kubeletplugin.kinds.passthrough.nodes import VfioNodes
from kubeletplugin.kinds.passthrough.units import Bus
from kubeletplugin.kinds.vgpu.held import HeldVgpu
from kubeletplugin.kinds.vgpu.making import Vgpus
from kubeletplugin.kinds.whole import HeldWhole
from kubeletplugin.vfio.binder import GroupBinder
from kubeletplugin.vfio.function_files import Users
from kubeletplugin.wire.controllers import Controllers


@dataclass(frozen=True, slots=True)
class NodePorts:
    """What a kind may ask of the node: its GPUs, their nodes, what claims hold, and which era it is.

    ``sysfs_root``, ``kernel``, ``binder``, ``users`` and ``vfio_nodes`` are for functions of virtual
    machines: where they are seen, who is told of them, what binds them, who has them open, and how they are
    opened.
    ``controllers`` are those of the node, which have GPUs open as well.
    """

    discovery: Discovery
    nodes: GpuNodes
    journal: Journal
    era: Callable[[], Era]
    sysfs_root: Path
    kernel: Kernel
    binder: GroupBinder
    users: Users
    vfio_nodes: VfioNodes
    controllers: Controllers


KindsOf = Callable[[NodePorts], Sequence[HeldKind]]
"""Gives the kinds of a node."""


def own_kinds(ports: NodePorts) -> tuple[HeldKind, ...]:
    """Whole GPUs, partitions of an admin, those made for claims, and vGPUs and GPUs for virtual machines."""
    partitions = Partitions(ports.discovery)
    return (
        HeldWhole(ports.discovery, ports.nodes, partitions.ready_for_whole),
        HeldStatic(partitions, ports.nodes),
        HeldMade(partitions, ports.nodes, ports.journal, ports.era),
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
