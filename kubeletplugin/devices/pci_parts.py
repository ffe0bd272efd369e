"""Builds the parts that work on whole GPUs as PCI functions: other kernel drivers, and resets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kubeletplugin.devices.host.driver_programs import DriverPrograms
from kubeletplugin.devices.kinds.passthrough.nodes import VfioNodes
from kubeletplugin.devices.kinds.registry import NodePorts
from kubeletplugin.devices.kinds.vgpu.virtual_functions import VirtualFunctions
from kubeletplugin.reports.healing.gpu_reset import GpuReset
from kubeletplugin.reports.healing.healer import Healer
from kubeletplugin.reports.healing.records import FOLDER, HealRecords

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubeletplugin.claims.journal.identity import Identity
    from kubeletplugin.claims.journal.journal import Journal
    from kubeletplugin.claims.journal.locks import KeyedLocks
    from kubeletplugin.claims.journal.peers import Peers
    from kubeletplugin.devices.hardware import Hardware
    from kubeletplugin.devices.host.gpu_nodes import GpuNodes
    from kubeletplugin.reports.node_watch import NodeWatch
    from kubeletplugin.sharing.claim_sharing import ClaimShares


def virtual_functions(hardware: Hardware, journal: Journal, locks: KeyedLocks) -> VirtualFunctions:
    """What turns on the virtual functions of GPUs."""
    sessions = hardware.discovery, hardware.controllers
    return VirtualFunctions(hardware.sysfs_root, hardware.kernel, hardware.users, sessions, (journal, locks))


def healer(
    identity: Identity,
    hardware: Hardware,
    data: Path,
    peers: Peers,
    claims: tuple[Journal, KeyedLocks, ClaimShares],
    watch: NodeWatch,
    step: Callable[[str], None],
) -> Healer:
    """What resets GPUs; ``data`` is the plugin's own folder."""
    return Healer(
        hardware.sysfs_root,
        (hardware.discovery, hardware.controllers),
        hardware.users,
        hardware.gpu_reset or GpuReset(DriverPrograms(hardware.driver, data / "libraries")),
        claims,
        HealRecords(data / FOLDER, identity.boot_id, peers.watch()),
        watch,
        step,
    )


def node_ports(identity: Identity, hardware: Hardware, nodes: GpuNodes, journal: Journal) -> NodePorts:
    """What kinds of devices ask of the node."""
    return NodePorts(
        hardware.discovery,
        nodes,
        journal,
        identity.era,
        hardware.sysfs_root,
        hardware.kernel,
        hardware.binder,
        hardware.users,
        VfioNodes(hardware.driver),
        hardware.controllers,
    )
