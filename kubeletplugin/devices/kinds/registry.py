"""The kinds of devices that this driver prepares. Who connects a process may hand it others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from driver.hardware.inventory import Discovery
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.devices.host.gpu_nodes import GpuNodes
from kubeletplugin.devices.host.kernel import Kernel
from kubeletplugin.devices.kinds.kind import HeldKind
from kubeletplugin.devices.kinds.partition.made import HeldMade
from kubeletplugin.devices.kinds.partition.making import Partitions
from kubeletplugin.devices.kinds.partition.static import HeldStatic
from kubeletplugin.devices.kinds.passthrough.hand_over import HandOver
from kubeletplugin.devices.kinds.passthrough.held import HeldPassthrough
from kubeletplugin.devices.kinds.passthrough.nodes import VfioNodes
from kubeletplugin.devices.kinds.passthrough.units import Bus
from kubeletplugin.devices.kinds.vgpu.held import HeldVgpu
from kubeletplugin.devices.kinds.vgpu.making import Vgpus
from kubeletplugin.devices.kinds.whole import HeldWhole
from kubeletplugin.devices.vfio.binder import GroupBinder
from kubeletplugin.devices.vfio.function_files import Users
from kubeletplugin.kubelet.wire.controllers import Controllers


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
