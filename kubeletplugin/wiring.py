"""Connects the parts of the plugin to the node and the cluster, and runs them; it decides nothing itself."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from driver.devices.names import CHANNELS_DRIVER_NAME, DRIVER_NAME, pool_name
from driver.errors import ClaimRefused, StorageError
from driver.event_reasons import EventReason
from driver.hardware.inventory import Discovery
from driver.kube.client import KubeClient
from driver.kube.errors import NotFound
from driver.kube.events import EventRecorder, Reference
from driver.kube.paths import claim_path
from driver.nvml.api import Nvml
from driver.nvml.deadline import Guard
from driver.process.boot import running_boot_id
from driver.process.fresh_reading import FreshReading
from driver.process.log import get_logger
from driver.process.metrics import Metrics
from driver.process.metrics import serve as serve_metrics
from driver.process.service import Service
from driver.roots.watch import watch_roots
from fakegpu.nvml.flag import fabric_from_flag, nvml_from_flag, pretended_cgroups
from kubeletplugin.assembly import Folders, Parts, assemble, assemble_channels
from kubeletplugin.claims.claim_events import ClaimsWithEvents, post_missing, post_on_entry, post_waiting
from kubeletplugin.claims.journal.entry import Identity, driver_generation
from kubeletplugin.claims.ports import Cluster, Listeners, Timing
from kubeletplugin.devices.hardware import Hardware, pci_ports
from kubeletplugin.devices.host.driver_files import InstalledDriver
from kubeletplugin.devices.host.driver_programs import DriverPrograms
from kubeletplugin.devices.host.imex import Imex
from kubeletplugin.early_sockets import EarlySockets
from kubeletplugin.kubelet import podresources
from kubeletplugin.kubelet.node_state import NodeStateBoard
from kubeletplugin.kubelet.plugin_sockets import ALONE_PART, KUBELET_PART, READY_PART, open_sockets
from kubeletplugin.kubelet.wire.controllers import Controllers
from kubeletplugin.kubelet.wire.health_board import HealthBoard
from kubeletplugin.migration.other_driver import other_driver
from kubeletplugin.migration.takeover import TakeOver, take_over_claims
from kubeletplugin.plugin_metrics import PluginMetrics
from kubeletplugin.process_inputs import Given, Intervals
from kubeletplugin.reports.claim_status import ClaimStatuses, StatusWriter
from kubeletplugin.reports.device_status import HealthTracker, Observed
from kubeletplugin.reports.memory_watch import MemoryListeners, MemoryWatch
from kubeletplugin.reports.published import PublishedDevices, follow_slices
from kubeletplugin.reports.use.node_use import NodeUse
from kubeletplugin.settings import Settings
from kubeletplugin.sharing.memory.hook_socket import HookSocket
from kubeletplugin.sharing.memory.one_gpu import Listed
from kubeletplugin.sharing.mps_client import MpsClient
from kubeletplugin.sharing.shares import MpsFolders
from kubeletplugin.sharing.time_slices import TimeSlices

# How long a read of a claim may take, of the kubelet's 45 s.
_CLAIM_SECONDS = 5.0
# How long to wait for another instance that is starting.
_STARTING_SECONDS = 30.0
# The deadline of an NVML call for metrics.
_READ_SECONDS = 1.0
# How long the kubelet may take to list containers for metrics.
_LIST_SECONDS = 0.5
# The prefix of the resources of NVIDIA's device plugin.
_RESOURCES = "nvidia.com/"

_log = get_logger("kubeletplugin")


def claim_reader(client: KubeClient, saw: Callable[[Mapping[str, Any]], None]) -> Any:
    """A function that reads a claim by namespace and name; it raises ClaimRefused if there is none.

    ``saw`` is called with each claim that was read.
    """

    def get(namespace: str, name: str) -> dict[str, Any]:
        try:
            stored = client.get(claim_path(namespace, name), timeout_seconds=_CLAIM_SECONDS)
        except NotFound as error:
            raise ClaimRefused(
                f"claim {namespace}/{name} does not exist", "delete the pod, so that it is created again"
            ) from error
        saw(stored)
        return stored

    return get


@dataclass(frozen=True, slots=True)
class _Node:
    """The connections to the node and the cluster that several parts use."""

    settings: Settings
    intervals: Intervals
    metrics: Metrics
    identity: Identity
    client: KubeClient
    nvml: Nvml
    discovery: Discovery
    events: EventRecorder


@dataclass(frozen=True, slots=True)
class _Reports:
    """The parts that report about claims: their status, and their use of GPUs."""

    statuses: ClaimStatuses
    use: FreshReading[NodeUse]
    memory: MemoryWatch


def serve(settings: Settings, given: Given, early: EarlySockets, taken: TakeOver | None = None) -> None:
    """Run the plugin behind its open sockets until SIGTERM; raises DriverError if it cannot start.

    ``taken`` has the claims to take over from another driver.
    """
    intervals = given.intervals
    node = _connect(settings, intervals, early.service, early.metrics)
    service, metrics = early.service, early.metrics
    published = PublishedDevices()
    reflector = follow_slices(node.client, settings.node_name, DRIVER_NAME, published, service.stop_event)
    parts, reports = _claims(node, published, early)
    service.spawn("events", node.events.run, stop=node.events.stop)
    service.spawn("use of GPUs", reports.use.run, stop=reports.use.stop)
    service.spawn("slices", reflector.run, stop=reflector.wake)
    # Metrics are served before claims are: a start that hangs can be seen.
    serve_metrics(service, settings.metrics_addr, metrics)
    if taken is not None:
        with parts.peers.starting(_STARTING_SECONDS):
            take_over_claims(taken, settings.former_checkpoint, parts.store, parts.preparer.adopt)
    hooks = HookSocket(settings.memory_socket.parent, settings.memory_socket.stem, parts.memory.start)
    hooks.open()  # before claims are prepared, whose containers may start at once
    service.spawn("memory hook", hooks.run, hooks.stop)
    service.on_stop("containers that wait", parts.memory.stop)
    # From here on calls of the kubelet are answered, and the controller publishes devices.
    early.claims.ready(ClaimsWithEvents(parts.preparer, node.events))
    early.sockets.serving.up(READY_PART)
    # From here on the order does not matter: each loop looks for its own work.
    service.spawn("claim status", reports.statuses.run, stop=reports.statuses.stop)
    service.spawn("node state", parts.watch.run, stop=parts.watch.stop)
    # An event makes a loop run at once: another driver root changes the files that CDI specs name.
    specs_now = Event()
    watch_roots(service, settings.roots, intervals.check_seconds, node.discovery.close, specs_now.set)
    service.repeat("CDI specs", intervals.check_seconds, parts.reconciler.restore_specs, specs_now)
    service.repeat("reconciler", intervals.reconcile_seconds, parts.reconciler.run_once)
    service.repeat("hook", intervals.reconcile_seconds, lambda: parts.hooks.keep(parts.store.names))
    service.spawn("MPS", parts.sharing_reconciler.follow, stop=parts.sharing_reconciler.stop)
    service.repeat("sharing", intervals.check_seconds, parts.sharing_reconciler.run_once)
    service.repeat("fabric", intervals.check_seconds, parts.fabric.run_once)
    early.state.set_enable_virtual(parts.virtual.enable)
    early.state.set_heal(parts.healer.heal)
    hold = partial(_hold_memory, parts, reports.memory)
    service.repeat("memory", intervals.check_seconds, hold, parts.memory.wanted)
    if settings.used_memory_status_seconds:
        service.repeat("memory status", settings.used_memory_status_seconds, reports.memory.see_use)
    service.repeat("NVIDIA driver", intervals.driver_load_seconds, parts.memory.check_driver)
    service.repeat("PCI functions", intervals.check_seconds, partial(_finish_functions, parts))
    service.repeat("releases", intervals.check_seconds, parts.reconciler.finish_releases)
    health_now = Event()
    published.on_fault(health_now.set)
    parts.health.add_reported(published.health_of)
    service.repeat("health", intervals.check_seconds, parts.health.run_once, health_now)
    service.repeat("other driver", intervals.check_seconds, _OtherDriverCheck(node, early).run_once)
    if settings.channels:
        _serve_channels(node, parts, published, service)
    # Registered last and so run first: running calls need everything above until they have finished.
    service.on_stop("calls", early.sockets.close)
    # Otherwise a call may wait 8 ms for a collection of everything that was imported.
    gc.collect()
    gc.freeze()
    service.run()


def _serve_channels(node: _Node, parts: Parts, published: PublishedDevices, service: Service) -> None:
    """Prepare claims for IMEX channels, as a DRA driver of its own with sockets and files of its own."""
    settings, intervals, driver = node.settings, node.intervals, CHANNELS_DRIVER_NAME
    _make_folder(settings.channels_dir)
    identity = replace(node.identity, driver=driver, pool="")
    cluster = _cluster(node, published, lambda _claim: None, driver)
    folders = Folders(settings.channels_dir, settings.cdi_dir)
    channels = assemble_channels(parts.common, identity, cluster, folders)
    service_socket, registration_socket = settings.channels_sockets
    claims = ClaimsWithEvents(channels.preparer, node.events)
    sockets = open_sockets(
        service,
        driver=driver,
        service_socket=service_socket,
        registration_socket=registration_socket,
        claims=claims,
        board=HealthBoard(),
        state=NodeStateBoard(),
        metrics=node.metrics,
    )
    sockets.serving.up(READY_PART)
    service.repeat("channels' CDI specs", intervals.check_seconds, channels.reconciler.restore_specs)
    service.repeat("channels", intervals.reconcile_seconds, channels.reconciler.run_once)
    service.on_stop("calls for channels", sockets.close)


def _hold_memory(parts: Parts, watch: MemoryWatch) -> None:
    parts.memory.run_once()
    watch.see_faults()


def _finish_functions(parts: Parts) -> None:
    parts.virtual.finish()
    parts.healer.finish()


class _OtherDriverCheck:
    """Marks the plugin as not serving while another driver of this name answers on the node."""

    def __init__(self, node: _Node, early: EarlySockets) -> None:
        self._node = node
        self._serving = early.sockets.serving
        self._was: Path | None = None

    def run_once(self) -> None:
        """Check once; report another driver that has come or gone."""
        settings = self._node.settings
        found = other_driver(settings.data_dir, settings.registry_dir.absolute(), DRIVER_NAME)
        if found == self._was:
            return
        self._was = found
        if found is None:
            _log.info("no other driver with this name answers on the node any more")
            self._serving.up(ALONE_PART)
            return
        # The controller writes no slices while the plugin does not serve.
        self._serving.down(ALONE_PART)
        text = (
            f"another driver with the name {DRIVER_NAME} answers at {found}: the kubelet may ask either of "
            "them for a claim, so no slices are written; remove one of the two from the node"
        )
        _log.error("two drivers have the same name", socket=str(found))
        about = Reference("v1", "Node", settings.node_name, settings.node_name)
        self._node.events.post(about, EventReason.OTHER_DRIVER, text)


def _connect(settings: Settings, intervals: Intervals, service: Service, metrics: Metrics) -> _Node:
    client = KubeClient.connect(
        settings.kubeconfig, user_agent="gpu-dra-kubeletplugin", on_request=metrics.request_ended
    )
    service.on_stop("API client", client.close)
    # Metrics are read by threads of their own, with a shorter deadline, so that they do not hold claims up.
    guard, readers = Guard(), Guard(_READ_SECONDS)
    for lanes in (guard, readers):
        lanes.on_call = metrics.nvml_called
        service.on_stop("NVML", lanes.close)
    nvml = nvml_from_flag(settings.nvml, settings.roots)
    return _Node(
        settings,
        intervals,
        metrics,
        Identity(
            DRIVER_NAME,
            pool_name(settings.node_name),
            running_boot_id(),
            lambda: driver_generation(settings.sysfs_root),
        ),
        client,
        nvml,
        Discovery(nvml, settings.sysfs_root, guard, readers=readers),
        EventRecorder(client, "gpu-dra-kubeletplugin", settings.node_name),
    )


def _claims(node: _Node, published: PublishedDevices, early: EarlySockets) -> tuple[Parts, _Reports]:
    """The parts with the real ports, and the reports about claims."""
    settings, metrics = node.settings, node.metrics
    _make_folder(settings.data_dir)
    writer = StatusWriter(node.client, node.events.post)
    folders = Folders(settings.data_dir, settings.cdi_dir)
    listeners = Listeners(
        lambda _entry: reports.statuses.changed(),
        early.state.update,
        early.board,
        timing=Timing(metrics.phase, metrics.journal_written, metrics.cdi_written),
    )
    hardware = _hardware(node, early.state.controllers)
    parts = assemble(
        node.identity,
        hardware,
        _cluster(node, published, writer.saw),
        folders,
        listeners,
        node.intervals,
    )

    def listed() -> Listed:
        return podresources.containers_by_device(
            podresources.list_pods(settings.pod_resources_socket, _LIST_SECONDS), DRIVER_NAME
        )

    plugin_metrics = PluginMetrics(
        node.discovery,
        parts,
        published,
        listed,
        settings.roots.host_root,
    )
    reports = _reports(node, parts, plugin_metrics, writer, early.board)
    if settings.mps_socket.exists():
        hardware.mps.note_use()  # it may have daemons that no claim needs
    _log_recovered(parts)
    metrics.prepared_claims.set_function(parts.journal.held_count)
    plugin_metrics.show(metrics, settings.node_name)
    metrics.show_number("gpu_dra_plugin_registered", lambda: not early.sockets.serving.is_down(KUBELET_PART))
    return parts, reports


def _make_folder(folder: Path) -> None:
    """Make a folder for a DRA driver; raises StorageError."""
    try:
        # The kubelet's folder for plugins must exist; a folder made here by mistake would stay unseen.
        folder.mkdir(mode=0o750, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot make the folder {folder}: {error.strerror}", "make --plugins-dir writable"
        ) from error


def _reports(
    node: _Node, parts: Parts, plugin_metrics: PluginMetrics, writer: StatusWriter, board: HealthBoard
) -> _Reports:
    def changed() -> None:
        statuses.changed()

    def observed() -> Observed:
        return Observed(parts.kinds, watch.known(), healths.known(), parts.fabric.number_of)

    events = node.events
    listeners = MemoryListeners(
        partial(post_on_entry, events, EventReason.MEMORY_LIMIT_NOT_HELD),
        partial(post_on_entry, events, EventReason.MEMORY_LIMIT_HELD),
        changed,
    )
    watch = MemoryWatch(parts.journal.held, parts.memory.faults, plugin_metrics.containers, listeners)
    healths = HealthTracker(changed)
    statuses = ClaimStatuses(writer, parts.journal, observed)
    board.on_update(healths.update)
    return _Reports(statuses, plugin_metrics.use, watch)


def assemble_alone(settings: Settings, given: Given, service: Service) -> Parts:
    """The parts with the real ports and without reports, for the uninstallation; raises DriverError."""
    node = _connect(settings, given.intervals, service, Metrics("kubeletplugin"))
    return assemble(
        node.identity,
        _hardware(node, Controllers(lambda _: None)),
        _cluster(node, PublishedDevices(), lambda _claim: None),
        Folders(settings.data_dir, settings.cdi_dir),
        Listeners(lambda _: None, lambda _: None, HealthBoard()),
        node.intervals,
    )


def _hardware(node: _Node, controllers: Controllers) -> Hardware:
    settings = node.settings
    driver = InstalledDriver(settings.roots)
    kernel, binder, users = pci_ports(node.nvml, settings.roots, settings.sysfs_root)
    programs = DriverPrograms(driver, settings.data_dir / "libraries")
    return Hardware(
        node.discovery,
        settings.sysfs_root,
        driver,
        TimeSlices(programs),
        MpsClient(settings.mps_socket),
        MpsFolders(settings.mps_dir.absolute()),
        fabric_from_flag(settings.nvml, settings.roots),
        kernel,
        binder,
        users,
        controllers,
        Imex(programs, (settings.roots.host_root or Path("/")) / settings.imex_socket.relative_to("/")),
        settings.cdi_hook,
        settings.memory_hook,
        None if settings.nvml == "real" else pretended_cgroups(node.nvml),
    )


def _cluster(
    node: _Node,
    published: PublishedDevices,
    saw: Callable[[Mapping[str, Any]], None],
    driver: str = DRIVER_NAME,
) -> Cluster:
    pods = podresources.SharedList(lambda: podresources.list_pods(node.settings.pod_resources_socket))
    return Cluster(
        claim_reader(node.client, saw),
        published,
        lambda: podresources.devices_in_use(node.settings.pod_resources_socket, driver),
        lambda: podresources.given_by_device_plugins(pods.recent(), _RESOURCES),
        lambda claim, error: post_waiting(node.events, claim, error),
        lambda claim, text: post_missing(node.events, claim, text),
        lambda: podresources.containers_by_device(pods.now(), driver),
    )


def _log_recovered(parts: Parts) -> None:
    recovered = parts.recovered
    for aside in parts.journal.take_set_aside():
        _log.error(
            "journal file cannot be read and was put aside",
            uid=aside.uid,
            file=str(aside.path),
            reason=aside.reason,
        )
    for uid, error in recovered.failed:
        _log.error("cannot replace the CDI spec", uid=uid, error=error)
    if recovered.lost:
        _log.error("journal entries of claims were lost; their GPUs are blocked", uids=recovered.lost)
    if recovered.removed:
        _log.warning("removed CDI specs that belonged to no claim", uids=recovered.removed)
