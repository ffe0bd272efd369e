"""The kinds of devices that this driver prepares. Who connects a process may hand it others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from driver.hardware.inventory import Discovery
from kubeletplugin.host.gpu_nodes import GpuNodes
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
from kubeletplugin.kinds.whole import HeldWhole
from kubeletplugin.vfio.binder import GroupBinder, Users
from kubeletplugin.wire.controllers import Controllers


@dataclass(frozen=True, slots=True)
class NodePorts:
    """What a kind may ask of the node: its GPUs, their nodes, what claims hold, and which era it is.

    ``sysfs_root``, ``binder``, ``users`` and ``vfio_nodes`` are for functions that leave their drivers: where
    they are seen, what binds them, who has them open, and how they are opened. ``controllers`` are those of
    the node, which have GPUs open as well.
    """

    discovery: Discovery
    nodes: GpuNodes
    journal: Journal
    era: Callable[[], Era]
    sysfs_root: Path
    binder: GroupBinder
    users: Users
    vfio_nodes: VfioNodes
    controllers: Controllers


KindsOf = Callable[[NodePorts], Sequence[HeldKind]]
"""Gives the kinds of a node."""


def own_kinds(ports: NodePorts) -> tuple[HeldKind, ...]:
    """Whole GPUs, partitions of an admin, those that are made for claims, and GPUs for virtual machines."""
    partitions = Partitions(ports.discovery)
    return (
        HeldWhole(ports.discovery, ports.nodes, partitions.ready_for_whole),
        HeldStatic(partitions, ports.nodes),
        HeldMade(partitions, ports.nodes, ports.journal, ports.era),
        HeldPassthrough(
            ports.discovery,
            Bus(ports.sysfs_root),
            ports.vfio_nodes,
            HandOver(ports.discovery, ports.controllers, ports.binder),
            ports.users,
        ),
    )
