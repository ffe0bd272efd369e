"""Builds the parts that work on claims, on top of the hardware, the cluster and the disk.

The process and the tests build them here and nowhere else, so the tests check what runs. Nothing is started
here: the process adds threads and sockets, and decides in which order they end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from kubeletplugin.devices.host.imex import Rack
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
from kubeletplugin.sharing.memory.one_gpu import FOLDER as MEMORY
from kubeletplugin.sharing.memory.one_gpu import Ledger, MemoryPorts
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
class Common:
    """What the claims of all DRA drivers of the node are prepared with."""

    hardware: Hardware
    kinds: NodeKinds
    nodes: GpuNodes
    hooks: Hooks
    shares: ClaimShares
    fabric: ClaimFabric
    leftovers: RecordIndex
    memory: ClaimMemory
    listeners: Listeners
    intervals: Intervals

    def claims(
        self,
        identity: Identity,
        cluster: Cluster,
        records: tuple[Journal, KeyedLocks],
        files: tuple[CdiStore, MetadataStore],
        watch: NodeWatch,
    ) -> tuple[Preparer, Reconciler]:
        """What prepares and releases the claims of one DRA driver, with its own records and files."""

        # The preparer and the reconciler need each other.
        def release_unneeded(uid: str) -> bool:
            return reconciler.release_unneeded(uid)

        journal, (store, metadata_store), hardware = records[0], files, self.hardware
        specs = Specs(
            self.kinds, self.nodes, hardware.driver, hardware.mps_folders, self.hooks, metadata_store
        )
        metadata = ClaimMetadata(metadata_store, self.kinds, cluster.published)
        claim_files = ClaimFiles(store, metadata, self.listeners.step, self.listeners.timing)
        ports = Ports(cluster, self.listeners, watch, self.memory, release_unneeded)
        preparer = Preparer(
            identity, *records, self.kinds, self.shares, self.fabric, self.leftovers, specs, claim_files,
            ports, self.intervals.patience_seconds,
        )  # fmt: skip
        reconciler = Reconciler(identity, journal, preparer, (specs, claim_files), cluster, watch)
        return preparer, reconciler


@dataclass(frozen=True, slots=True)
class Channels:
    """The parts that work on claims for IMEX channels: a DRA driver of its own, with files of its own."""

    peers: Peers
    journal: Journal
    preparer: Preparer
    reconciler: Reconciler


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
    common: Common


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
    discovery, generation, step = hardware.discovery, identity.driver_generation, listeners.step
    # First, since it removes the files of earlier boots before anything reads them.
    store = CdiStore(folders.cdi)
    peers, locks, boot = _disk(identity, folders, store, listeners.timing)
    journal = Journal(boot / JOURNAL, peers.watch(), generation, listeners.timing.journal)
    # Absolute, since specs name it to the runtime, which has another working directory.
    metadata_store = MetadataStore(boot.absolute() / "metadata")
    hooks = _hooks(hardware, folders, peers)
    nodes = GpuNodes(hardware.sysfs_root)
    kernel, users = hardware.kernel, hardware.users
    pci = hardware.sysfs_root, kernel, hardware.binder, users, hardware.driver, hardware.controllers
    rack = Rack(cluster.published.clique, hardware.imex)
    kinds = HELD_KINDS.on(NodePorts(discovery, nodes, journal, *pci, rack))
    waits = intervals.state_again_seconds, intervals.state_settle_seconds
    watch = NodeWatch(journal, kinds, listeners.state, *waits)
    journal.on_change = watch.claims_changed
    # A GPU whose MIG mode changes is reported as busy meanwhile.
    discovery.on_mode_change(watch.mode_changes)
    # Each owner of a folder needs a watch of its own: a watch reports a change only once.
    ledger, limits = Ledger(boot / MEMORY, peers.watch()), GpuLimits(discovery, generation)
    cgroups = hardware.cgroups or RealCgroups(hardware.sysfs_root / "fs/cgroup")
    limiting = MemoryPorts(ledger, limits, cgroups, step)
    memory = ClaimMemory(limiting, journal, locks, cluster.containers, intervals.patience_seconds)
    shared = SharingRecords(boot / SHARING, generation, peers.watch())
    sharing = Sharing(discovery, hardware.time_slices, hardware.mps, shared, watch, step)
    shares = ClaimShares(sharing, kinds, journal, cluster.published, limits)
    sharing_reconciler = SharingReconciler(sharing, shares, journal, locks, hardware.mps, watch)
    partitions = FabricRecords(boot / FABRIC, peers.watch())
    holders, published = PartitionHolders(journal, step), cluster.published
    fabric = ClaimFabric(hardware.fabric, partitions, holders, locks, discovery, published)
    leftovers = RecordIndex(shared.files, partitions.files)
    common = Common(hardware, kinds, nodes, hooks, shares, fabric, leftovers, memory, listeners, intervals)
    preparer, reconciler = common.claims(identity, cluster, (journal, locks), (store, metadata_store), watch)
    sessions = discovery, hardware.controllers
    virtual = VirtualFunctions(hardware.sysfs_root, kernel, users, sessions, (journal, locks))
    given = cluster.given_by_device_plugins
    health = HealthCheck(discovery, listeners.board, identity.pool, journal, watch, kinds, given)
    # Last, since recovery writes entries, and the journal tells the other parts of these. Metadata of a claim
    # whose entry was lost stays, since the entry is there again when they are swept.
    recovered = recover(journal, locks, store, identity)
    sweep(metadata_store, journal, locks)
    gpu_reset = hardware.gpu_reset or GpuReset(DriverPrograms(hardware.driver, folders.data / "libraries"))
    claims, healed = (journal, locks, shares), HealRecords(boot / HEALING, peers.watch())
    healer = Healer(hardware.sysfs_root, sessions, users, gpu_reset, claims, healed, watch, step)
    return Parts(
        boot, peers, kinds, journal, store, hooks, preparer, reconciler, sharing_reconciler, fabric, virtual,
        healer, watch, health, memory, recovered, common,
    )  # fmt: skip


def assemble_channels(of_gpus: Common, identity: Identity, cluster: Cluster, folders: Folders) -> Channels:
    """The parts for claims of the DRA driver for IMEX channels. Raises StorageError.

    A claim may have GPUs and a channel: each driver prepares its part, and keeps its own entry of the claim.
    """
    # The nodes of a gang share its claim, so none of them writes into its status.
    common = replace(of_gpus, listeners=replace(of_gpus.listeners, prepared=lambda _entry: None))
    timing = common.listeners.timing
    store = CdiStore(folders.cdi, identity.driver)
    peers, locks, boot = _disk(identity, folders, store, timing)
    journal = Journal(boot / JOURNAL, peers.watch(), identity.driver_generation, timing.journal)
    metadata_store = MetadataStore(boot.absolute() / "metadata", identity.driver)
    # Channels lie on no GPU, so there is nothing to tell the controller of the node.
    watch = NodeWatch(journal, common.kinds, lambda _state: None, common.intervals.state_again_seconds)
    files = store, metadata_store
    preparer, reconciler = common.claims(identity, cluster, (journal, locks), files, watch)
    recover(journal, locks, store, identity)
    sweep(metadata_store, journal, locks)
    return Channels(peers, journal, preparer, reconciler)


def _disk(identity: Identity, folders: Folders, store: CdiStore, timing: Timing) -> Disk:
    """Open the files that several instances share, and remove those of earlier boots."""
    data = folders.data
    peers, locks = Peers(data / "instances"), KeyedLocks(data / "locks", timing.waited)
    # One instance at a time, so that none removes files that another one has just written.
    with peers.starting(_STARTING_SECONDS):
        boot = begin_boot(data, store, identity.boot_id)
        remove_litter(boot, folders.cdi, store, peers.alone)
    return peers, locks, boot


def _hooks(hardware: Hardware, folders: Folders, peers: Peers) -> Hooks:
    """Make the hooks, and copy them to the host if that is possible."""
    host_root = hardware.driver.host_root or Path("/")
    hooks = Hooks(hardware.hook, folders.data.absolute(), peers.alone, host_root, hardware.memory_hook)
    # Logs its errors and raises none, since claims that do not need the copies can still be prepared.
    hooks.install()
    return hooks
