"""Builds the parts that work on claims, on top of the hardware, the cluster and the disk.

The process and the tests build them here and nowhere else, so the tests check what runs. Nothing is started
here: the process adds threads and sockets, and decides in which order they end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kubeletplugin.claims.cdi.hooks import Hooks
from kubeletplugin.claims.cdi.store import CdiStore
from kubeletplugin.claims.files import ClaimFiles, Specs
from kubeletplugin.claims.journal.entry import Identity
from kubeletplugin.claims.journal.journal import FOLDER as JOURNAL
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.journal.locks import KeyedLocks, Peers
from kubeletplugin.claims.journal.record_folder import RecordIndex
from kubeletplugin.claims.metadata import ClaimMetadata, MetadataStore, sweep
from kubeletplugin.claims.ports import Cluster, Listeners, Ports, Timing
from kubeletplugin.claims.preparer import Preparer
from kubeletplugin.claims.reconciler import Reconciler
from kubeletplugin.claims.recovery import Recovered, begin_boot, recover, remove_litter
from kubeletplugin.devices.fabric.claim_partitions import (
    ClaimFabric,
    PartitionHolders,
)
from kubeletplugin.devices.fabric.records import FOLDER as FABRIC
from kubeletplugin.devices.fabric.records import FabricRecords
from kubeletplugin.devices.hardware import Hardware
from kubeletplugin.devices.host.driver_programs import DriverPrograms
from kubeletplugin.devices.host.gpu_nodes import GpuNodes
from kubeletplugin.devices.kinds.kind import NodeKinds, NodePorts
from kubeletplugin.devices.kinds.registry import HELD_KINDS
from kubeletplugin.devices.kinds.vgpu.virtual_functions import VirtualFunctions
from kubeletplugin.process_inputs import Intervals
from kubeletplugin.reports.healing.gpu_reset import GpuReset
from kubeletplugin.reports.healing.healer import Healer
from kubeletplugin.reports.healing.records import FOLDER as HEALING
from kubeletplugin.reports.healing.records import HealRecords
from kubeletplugin.reports.health_check import HealthCheck
from kubeletplugin.reports.node_watch import NodeWatch
from kubeletplugin.sharing.claim_sharing import ClaimShares, SharingReconciler
from kubeletplugin.sharing.gpus import Sharing
from kubeletplugin.sharing.memory.cgroups import RealCgroups
from kubeletplugin.sharing.memory.claim_memory import ClaimMemory
from kubeletplugin.sharing.memory.gpu_limits import GpuLimits
from kubeletplugin.sharing.memory.ledger import FOLDER as MEMORY
from kubeletplugin.sharing.memory.ledger import Ledger
from kubeletplugin.sharing.memory.one_gpu import MemoryPorts
from kubeletplugin.sharing.records import FOLDER as SHARING
from kubeletplugin.sharing.records import SharingRecords

_STARTING_SECONDS = 30.0

Disk = tuple[Peers, KeyedLocks, Path]


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of files that outlive the process: the plugin's own, which must exist, and that of CDI."""

    data: Path
    cdi: Path


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that work on claims, and the folder of the boot.

    ``recovered`` is what was repaired when they were built.
    """

    boot: Path
    peers: Peers
    kinds: NodeKinds
    journal: Journal
    store: CdiStore
    hooks: Hooks
    preparer: Preparer
    reconciler: Reconciler
    sharing_reconciler: SharingReconciler
    fabric: ClaimFabric
    virtual: VirtualFunctions
    healer: Healer
    watch: NodeWatch
    health: HealthCheck
    memory: ClaimMemory
    recovered: Recovered


def assemble(
    identity: Identity,
    hardware: Hardware,
    cluster: Cluster,
    folders: Folders,
    listeners: Listeners,
    intervals: Intervals,
) -> Parts:
    """Remove the files of earlier boots, build the parts, and make journal and CDI specs agree.

    Raises StorageError.
    """

    # The preparer and the reconciler need each other.
    def release_unneeded(uid: str) -> bool:
        return reconciler.release_unneeded(uid)

    generation, step = identity.driver_generation, listeners.step
    # First, since it removes the files of earlier boots before anything reads them.
    store = CdiStore(folders.cdi)
    peers, locks, boot = disk = _disk(identity, folders, store, listeners.timing)
    journal = Journal(boot / JOURNAL, peers.watch(), generation, listeners.timing.journal)
    # Absolute, since specs name it to the runtime, which has another working directory.
    metadata_store = MetadataStore(boot.absolute() / "metadata")
    hooks = _hooks(hardware, folders, peers)
    nodes = GpuNodes(hardware.sysfs_root)
    kinds = HELD_KINDS.on(_node_ports(hardware, nodes, journal))
    watch = _watch(hardware, listeners, journal, kinds, intervals)
    journal.on_change = watch.claims_changed
    limits = GpuLimits(hardware.discovery, generation)
    memory = _memory(hardware, cluster, disk, journal, limits, listeners, intervals)
    # Each owner of a folder needs a watch of its own: a watch reports a change only once.
    shared = SharingRecords(boot / SHARING, generation, peers.watch())
    sharing = Sharing(
        *(hardware.discovery, hardware.time_slices, hardware.mps, shared),
        *(watch, step),
    )
    shares = ClaimShares(sharing, kinds, journal, cluster.published, limits)
    sharing_reconciler = SharingReconciler(sharing, shares, journal, locks, hardware.mps, watch)
    partitions = FabricRecords(boot / FABRIC, peers.watch())
    holders, published = PartitionHolders(journal, step), cluster.published
    fabric = ClaimFabric(hardware.fabric, partitions, holders, locks, hardware.discovery, published)
    leftovers = RecordIndex(shared.files, partitions.files)
    specs = Specs(kinds, nodes, hardware.driver, hardware.mps_folders, hooks, metadata_store.folder)
    metadata = ClaimMetadata(metadata_store, kinds, published)
    claim_files = ClaimFiles(store, metadata, step, listeners.timing)
    ports = Ports(cluster, listeners, watch, memory, release_unneeded)
    written = specs, claim_files, ports, intervals.patience_seconds
    preparer = Preparer(identity, journal, locks, kinds, shares, fabric, leftovers, *written)
    reconciler = Reconciler(identity, journal, preparer, (specs, claim_files), cluster, watch)
    sessions = hardware.discovery, hardware.controllers
    virtual = VirtualFunctions(
        hardware.sysfs_root, hardware.kernel, hardware.users, sessions, (journal, locks)
    )
    given = cluster.given_by_device_plugins
    health = HealthCheck(hardware.discovery, listeners.board, identity.pool, journal, watch, kinds, given)
    # Last, since recovery writes entries, and the journal tells the other parts of these. Metadata of a claim
    # whose entry was lost stays, since the entry is there again when they are swept.
    recovered = recover(journal, locks, store, identity)
    sweep(metadata_store, journal, locks)
    healer = _healer(hardware, folders.data, disk, (journal, locks, shares), watch, step)
    return Parts(
        boot, peers, kinds, journal, store, hooks, preparer, reconciler, sharing_reconciler, fabric, virtual,
        healer, watch, health, memory, recovered,
    )  # fmt: skip


def _watch(
    hardware: Hardware,
    listeners: Listeners,
    journal: Journal,
    kinds: NodeKinds,
    intervals: Intervals,
) -> NodeWatch:
    again_seconds, settle_seconds = intervals.state_again_seconds, intervals.state_settle_seconds
    watch = NodeWatch(journal, kinds, listeners.state, again_seconds, settle_seconds)
    # A GPU whose MIG mode changes is reported as busy meanwhile.
    hardware.discovery.on_mode_change(watch.mode_changes)
    return watch


def _disk(identity: Identity, folders: Folders, store: CdiStore, timing: Timing) -> Disk:
    """Open the files that several instances share, and remove those of earlier boots."""
    data = folders.data
    peers, locks = Peers(data / "instances"), KeyedLocks(data / "locks", timing.waited)
    # One instance at a time, so that none removes files that another one has just written.
    with peers.starting(_STARTING_SECONDS):
        boot = begin_boot(data, store, identity.boot_id)
        remove_litter(boot, folders.cdi, peers.alone)
    return peers, locks, boot


def _hooks(hardware: Hardware, folders: Folders, peers: Peers) -> Hooks:
    """Make the hooks, and copy them to the host if that is possible."""
    host_root = hardware.driver.host_root or Path("/")
    hooks = Hooks(hardware.hook, folders.data.absolute(), peers.alone, host_root, hardware.memory_hook)
    # Logs its errors and raises none, since claims that do not need the copies can still be prepared.
    hooks.install()
    return hooks


def _memory(
    hardware: Hardware,
    cluster: Cluster,
    disk: Disk,
    journal: Journal,
    limits: GpuLimits,
    listeners: Listeners,
    intervals: Intervals,
) -> ClaimMemory:
    peers, locks, boot = disk
    ports = MemoryPorts(
        Ledger(boot / MEMORY, peers.watch()),
        limits,
        hardware.cgroups or RealCgroups(hardware.sysfs_root / "fs/cgroup"),
        listeners.step,
    )
    return ClaimMemory(ports, journal, locks, cluster.containers, intervals.patience_seconds)


def _healer(
    hardware: Hardware,
    data: Path,
    disk: Disk,
    claims: tuple[Journal, KeyedLocks, ClaimShares],
    watch: NodeWatch,
    step: Callable[[str], None],
) -> Healer:
    """The part that resets GPUs; ``data`` is the plugin's own folder."""
    peers, _, boot = disk
    return Healer(
        hardware.sysfs_root,
        (hardware.discovery, hardware.controllers),
        hardware.users,
        hardware.gpu_reset or GpuReset(DriverPrograms(hardware.driver, data / "libraries")),
        claims,
        HealRecords(boot / HEALING, peers.watch()),
        watch,
        step,
    )


def _node_ports(hardware: Hardware, nodes: GpuNodes, journal: Journal) -> NodePorts:
    """The ports that kinds of devices use."""
    return NodePorts(
        hardware.discovery,
        nodes,
        journal,
        hardware.sysfs_root,
        hardware.kernel,
        hardware.binder,
        hardware.users,
        hardware.driver,
        hardware.controllers,
    )
