"""The kinds of devices that this driver prepares. Who connects a process may hand it others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from driver.hardware.inventory import Discovery
from kubeletplugin.host.gpu_nodes import GpuNodes
from kubeletplugin.journal.identity import Era
from kubeletplugin.journal.journal import Journal
from kubeletplugin.kinds.kind import HeldKind
from kubeletplugin.kinds.partition.made import HeldMade
from kubeletplugin.kinds.partition.making import Partitions
from kubeletplugin.kinds.partition.static import HeldStatic
from kubeletplugin.kinds.whole import HeldWhole


@dataclass(frozen=True, slots=True)
class NodePorts:
    """What a kind may ask of the node: its GPUs, their nodes, what claims hold, and which era it is."""

    discovery: Discovery
    nodes: GpuNodes
    journal: Journal
    era: Callable[[], Era]


KindsOf = Callable[[NodePorts], Sequence[HeldKind]]
"""Gives the kinds of a node."""


def own_kinds(ports: NodePorts) -> tuple[HeldKind, ...]:
    """Whole GPUs, partitions of an admin, and partitions that are made for claims."""
    partitions = Partitions(ports.discovery)
    return (
        HeldWhole(ports.discovery, ports.nodes, partitions.ready_for_whole),
        HeldStatic(partitions, ports.nodes),
        HeldMade(partitions, ports.nodes, ports.journal, ports.era),
    )
