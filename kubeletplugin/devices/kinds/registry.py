"""The kinds of devices that this driver prepares; the starter of the process may give others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from driver.hardware.inventory import Discovery
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.devices.host.gpu_nodes import GpuNodes, VfioNodes
from kubeletplugin.devices.host.kernel import Kernel
from kubeletplugin.devices.kinds.kind import HeldKind
from kubeletplugin.devices.kinds.partition.held import HeldMade, HeldStatic
from kubeletplugin.devices.kinds.partition.making import Partitions
from kubeletplugin.devices.kinds.passthrough.hand_over import HandOver
from kubeletplugin.devices.kinds.passthrough.held import Bus, HeldPassthrough
from kubeletplugin.devices.kinds.vgpu.held import HeldVgpu
from kubeletplugin.devices.kinds.vgpu.making import Vgpus
from kubeletplugin.devices.kinds.whole import HeldWhole
from kubeletplugin.devices.vfio.binder import GroupBinder
from kubeletplugin.devices.vfio.function_files import Users
from kubeletplugin.kubelet.wire.controllers import Controllers


@dataclass(frozen=True, slots=True)
class NodePorts:
    """What a kind may need of the node: its GPUs, their nodes, what claims hold, and the current era.

    The others are for functions that go to virtual machines: ``sysfs_root`` is where they are seen,
    ``kernel`` is told of changes, ``binder`` binds them, ``users`` says who has them open, and ``vfio_nodes``
    opens them. ``controllers`` are those of the node, which have GPUs open as well.
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
