"""Connects the parts of the plugin to the node and the cluster and runs them; no decision is made here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from driver.devices.names import DRIVER_NAME, pool_name
from driver.errors import ClaimRefused, StorageError
from driver.event_reasons import EventReason
from driver.hardware.inventory import Discovery
from driver.kube.client import KubeClient
from driver.kube.errors import NotFound
from driver.kube.events import EventRecorder, Reference
from driver.kube.paths import claim_path
from driver.nvml.api import Nvml
from driver.nvml.deadline import Guard
from driver.process.fresh_reading import FreshReading
from driver.process.log import get_logger
from driver.process.metrics import Metrics
from driver.process.metrics import serve as serve_metrics
from driver.process.service import Service
from driver.roots.watch import watch_roots
from fakegpu.nvml.flag import fabric_from_flag, nvml_from_flag, pretended_cgroups
from kubeletplugin.assembly import Cluster, Folders, Listeners, Parts, assemble
from kubeletplugin.claims.claim_events import ClaimsWithEvents, tell_missing, tell_of_entry, tell_waiting
from kubeletplugin.claims.journal.boot_marker import running_boot_id
from kubeletplugin.claims.journal.entry import Entry
from kubeletplugin.claims.journal.identity import Identity, driver_generation
from kubeletplugin.claims.ports import Timing
from kubeletplugin.devices.hardware import Hardware, pci_ports
from kubeletplugin.devices.host.driver_files import InstalledDriver
from kubeletplugin.devices.host.driver_programs import DriverPrograms
from kubeletplugin.devices.kinds.registry import KindsOf, own_kinds
from kubeletplugin.early_sockets import Front
from kubeletplugin.kubelet.face import ALONE_PART, KUBELET_PART, READY_PART
from kubeletplugin.kubelet.podresources import (
    SharedList,
    containers_by_device,
    devices_in_use,
    given_by_device_plugins,
    list_pods,
)
from kubeletplugin.kubelet.wire.controllers import Controllers
from kubeletplugin.kubelet.wire.health_board import HealthBoard
from kubeletplugin.migration.other_driver import other_driver
from kubeletplugin.migration.takeover import TakeOver, take_over_claims
from kubeletplugin.plugin_metrics import PluginMetrics
from kubeletplugin.process_inputs import Given, Intervals
from kubeletplugin.reports.claim_status import ClaimStatuses
from kubeletplugin.reports.device_status import HealthMemory, Now
from kubeletplugin.reports.memory_watch import MemoryListeners, MemoryWatch
from kubeletplugin.reports.published import PublishedDevices, follow_slices
from kubeletplugin.reports.status.writer import StatusWriter
from kubeletplugin.reports.use.node_use import NodeUse
from kubeletplugin.settings import Settings
from kubeletplugin.sharing.memory.hook_socket import HookSocket
from kubeletplugin.sharing.memory.one_gpu import Listed
from kubeletplugin.sharing.mps_client import MpsClient
from kubeletplugin.sharing.mps_edits import MpsFolders
from kubeletplugin.sharing.time_slices import TimeSlices

_CLAIM_SECONDS = 5.0
_STARTING_SECONDS = 30.0
_READ_SECONDS = 1.0
_LIST_SECONDS = 0.5
_RESOURCES = "nvidia.com/"

_log = get_logger("kubeletplugin")


def claim_reader(client: KubeClient, saw: Callable[[Mapping[str, Any]], None]) -> Any:
    """A function that gets a claim by namespace and name; one that is not there is refused for good.

    ``saw`` gets each that was read.
    """

    def get(namespace: str, name: str) -> dict[str, Any]:
        try:
            stored = client.get(claim_path(namespace, name), timeout_seconds=_CLAIM_SECONDS)
        except NotFound as error:
            raise ClaimRefused(
                f"claim {namespace}/{name} does not exist", "delete the pod, so that it is made anew"
            ) from error
        saw(stored)
        return stored

    return get


@dataclass(frozen=True, slots=True)
class _Node:
    """What the parts of the plugin share: who it is, and its edges."""

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
    """What tells of claims: their status, and what they have and use of GPUs."""

    statuses: ClaimStatuses
    look: FreshReading[NodeUse]
    memory: MemoryWatch


def serve(settings: Settings, given: Given, front: Front, taken: TakeOver | None = None) -> None:
    """Run the plugin behind its open sockets until SIGTERM; raises DriverError when it cannot start.

    ``taken`` is what another driver has left to be taken over.
    """
    intervals = given.intervals
    node = _connect(settings, intervals, front.service, front.metrics)
    service, metrics = front.service, front.metrics
    published = PublishedDevices()
    reflector = follow_slices(node.client, settings.node_name, DRIVER_NAME, published, service.stop_event)
    kinds_of = given.kinds() if given.kinds else own_kinds
    parts, reports = _claims(node, published, front, kinds_of)
    service.spawn("events", node.events.run, stop=node.events.stop)
    service.spawn("use of GPUs", reports.look.run, stop=reports.look.stop)
    service.spawn("slices", reflector.run, stop=reflector.wake)
    serve_metrics(service, settings.metrics_addr, metrics)
    if taken is not None:
        with parts.peers.starting(_STARTING_SECONDS):
            take_over_claims(taken, settings.former_checkpoint, parts.store, parts.preparer.adopt)
    hooks = HookSocket(settings.memory_socket.parent, settings.memory_socket.stem, parts.memory.start)
    hooks.open()  # before claims are prepared: their containers may start at once
    service.spawn("memory hook", hooks.run, hooks.stop)
    service.on_stop("containers that wait", parts.memory.stop)
    front.claims.ready(ClaimsWithEvents(parts.preparer, node.events))
    front.face.serving.up(READY_PART)
    service.spawn("claim status", reports.statuses.run, stop=reports.statuses.stop)
    service.spawn("node state", parts.watch.run, stop=parts.watch.stop)
    specs_now = Event()
    watch_roots(service, settings.roots, intervals.check_seconds, node.discovery.close, specs_now.set)
    service.repeat("CDI specs", intervals.check_seconds, parts.reconciler.restore_specs, specs_now)
    service.repeat("reconciler", intervals.reconcile_seconds, parts.reconciler.run_once)
    service.repeat("hook", intervals.reconcile_seconds, lambda: parts.hooks.keep(parts.store.names))
    service.spawn("MPS", parts.sharing_reconciler.follow, stop=parts.sharing_reconciler.stop)
    service.repeat("sharing", intervals.check_seconds, parts.sharing_reconciler.run_once)
    service.repeat("fabric", intervals.check_seconds, parts.fabric.run_once)
    front.state.enables_virtual(parts.virtual.enable)
    front.state.heals(parts.healer.heal)
    hold = partial(_hold_memory, parts, reports.memory)
    service.repeat("memory", intervals.check_seconds, hold, parts.memory.wanted)
    if settings.used_memory_status_seconds:
        service.repeat("memory status", settings.used_memory_status_seconds, reports.memory.see_use)
    service.repeat("NVIDIA driver", intervals.driver_load_seconds, parts.memory.look_at_driver)
    service.repeat("PCI functions", intervals.check_seconds, partial(_finish_functions, parts))
    service.repeat("releases", intervals.check_seconds, parts.reconciler.finish_releases)
    look_now = Event()
    published.on_fault(look_now.set)
    parts.health.hear_of(published.health_of)
    service.repeat("health", intervals.check_seconds, parts.health.run_once, look_now)
    service.repeat("other driver", intervals.check_seconds, _Alone(node, front).run_once)
    service.on_stop("calls", front.face.close)  # they need everything above until they have finished
    service.run()


def _hold_memory(parts: Parts, watch: MemoryWatch) -> None:
    parts.memory.run_once()
    watch.see_faults()


def _finish_functions(parts: Parts) -> None:
    parts.virtual.finish()
    parts.healer.finish()


class _Alone:
    """Serves only while no other driver of this name answers on the node."""

    def __init__(self, node: _Node, front: Front) -> None:
        self._node = node
        self._serving = front.face.serving
        self._was: Path | None = None

    def run_once(self) -> None:
        """Look once; another driver that has come, or gone, is told of."""
        settings = self._node.settings
        found = other_driver(settings.data_dir, settings.registry_dir.absolute(), DRIVER_NAME)
        if found == self._was:
            return
        self._was = found
        if found is None:
            _log.info("no other driver of this name answers on the node any more")
            self._serving.up(ALONE_PART)
            return
        self._serving.down(ALONE_PART)
        text = (
            f"another driver of the name {DRIVER_NAME} answers at {found}: the kubelet may ask either "
            "for a claim, so no slices are written meanwhile; remove one of the two from the node"
        )
        _log.error("two drivers of one name", socket=str(found))
        about = Reference("v1", "Node", settings.node_name, settings.node_name)
        self._node.events.post(about, EventReason.OTHER_DRIVER, text)


def _connect(settings: Settings, intervals: Intervals, service: Service, metrics: Metrics) -> _Node:
    client = KubeClient.connect(
        settings.kubeconfig, user_agent="gpu-dra-kubeletplugin", on_request=metrics.request_ended
    )
    service.on_stop("API client", client.close)
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


def _claims(
    node: _Node, published: PublishedDevices, front: Front, kinds_of: KindsOf
) -> tuple[Parts, _Reports]:
    """The parts with the real ports, and what tells of claims."""
    settings, metrics = node.settings, node.metrics
    try:
        settings.data_dir.mkdir(mode=0o750, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"the folder {settings.data_dir} cannot be made: {error.strerror}", "make --plugins-dir writable"
        ) from error

    def prepared(entry: Entry) -> None:
        reports.statuses.prepared(entry)

    writer = StatusWriter(node.client, node.events.post)
    folders = Folders(settings.data_dir, settings.cdi_dir)
    listeners = Listeners(
        metrics.prepared_claims.set,
        prepared,
        front.state.update,
        front.board,
        timing=Timing(metrics.phase, metrics.journal_written, metrics.cdi_written),
    )
    parts = assemble(
        node.identity,
        _hardware(node, front.state.controllers),
        _cluster(node, published, writer.saw),
        folders,
        listeners,
        node.intervals,
        kinds_of,
    )

    def listed() -> Listed:
        return containers_by_device(list_pods(settings.pod_resources_socket, _LIST_SECONDS), DRIVER_NAME)

    plugin_metrics = PluginMetrics(
        node.discovery, parts, node.identity.era, published.memory_of, listed, settings.roots.host_root
    )
    reports = _reports(node, parts, plugin_metrics, writer, front.board)
    if settings.mps_socket.exists():
        parts.sharing_reconciler.mps_is_used()  # it may have daemons that nobody needs
    _log_recovered(parts)
    metrics.prepared_claims.set(parts.journal.held_count())
    plugin_metrics.show(metrics, settings.node_name)
    metrics.show_number("gpu_dra_plugin_registered", lambda: not front.face.serving.is_down(KUBELET_PART))
    return parts, reports


def _reports(
    node: _Node, parts: Parts, plugin_metrics: PluginMetrics, writer: StatusWriter, board: HealthBoard
) -> _Reports:
    def changed() -> None:
        statuses.changed()

    def now() -> Now:
        return Now(watch.known(), healths.known(), parts.fabric.number_of)

    events = node.events
    listeners = MemoryListeners(
        partial(tell_of_entry, events, EventReason.MEMORY_LIMIT_NOT_HELD),
        partial(tell_of_entry, events, EventReason.MEMORY_LIMIT_HELD),
        changed,
    )
    watch = MemoryWatch(parts.journal.held, parts.memory.faults, plugin_metrics.containers, listeners)
    healths = HealthMemory(changed)
    statuses = ClaimStatuses(writer, parts.journal, node.identity.era, parts.kinds, now)
    board.on_update(healths.update)
    return _Reports(statuses, plugin_metrics.look, watch)


def assemble_alone(settings: Settings, given: Given, service: Service) -> Parts:
    """The parts with the real ports, and nobody who hears of them; raises DriverError.

    For a process that serves nobody: it takes away what the plugin has left.
    """
    node = _connect(settings, given.intervals, service, Metrics("kubeletplugin"))
    return assemble(
        node.identity,
        _hardware(node, Controllers(lambda _: None)),
        _cluster(node, PublishedDevices(), lambda _claim: None),
        Folders(settings.data_dir, settings.cdi_dir),
        Listeners(lambda _: None, lambda _: None, lambda _: None, HealthBoard()),
        node.intervals,
        given.kinds() if given.kinds else own_kinds,
    )


def _hardware(node: _Node, controllers: Controllers) -> Hardware:
    settings = node.settings
    driver = InstalledDriver(settings.roots)
    kernel, binder, users = pci_ports(node.nvml, settings.roots, settings.sysfs_root)
    return Hardware(
        node.discovery,
        settings.sysfs_root,
        driver,
        TimeSlices(DriverPrograms(driver, settings.data_dir / "libraries")),
        MpsClient(settings.mps_socket),
        MpsFolders(settings.mps_dir.absolute()),
        fabric_from_flag(settings.nvml, settings.roots),
        kernel,
        binder,
        users,
        controllers,
        settings.cdi_hook,
        settings.memory_hook,
        None if settings.nvml == "real" else pretended_cgroups(node.nvml),
    )


def _cluster(node: _Node, published: PublishedDevices, saw: Callable[[Mapping[str, Any]], None]) -> Cluster:
    pods = SharedList(lambda: list_pods(node.settings.pod_resources_socket))
    return Cluster(
        claim_reader(node.client, saw),
        published.uuid_of,
        published.memory_of,
        lambda: devices_in_use(node.settings.pod_resources_socket, DRIVER_NAME),
        lambda: given_by_device_plugins(pods.recent(), _RESOURCES),
        lambda claim, error: tell_waiting(node.events, claim, error),
        lambda claim, text: tell_missing(node.events, claim, text),
        published.attributes_of,
        lambda: containers_by_device(pods.now(), DRIVER_NAME),
    )


def _log_recovered(parts: Parts) -> None:
    recovered = parts.recovered
    for aside in parts.journal.take_set_aside():
        _log.error(
            "journal file put aside, it cannot be read",
            uid=aside.uid,
            file=str(aside.path),
            reason=aside.reason,
            rebuilt=aside.uid in recovered.rebuilt,
        )
    for uid, error in recovered.failed:
        _log.error("CDI spec left as it is", uid=uid, error=error)
    if recovered.rebuilt or recovered.removed:
        _log.warning(
            "journal and CDI specs brought together", rebuilt=recovered.rebuilt, removed=recovered.removed
        )
