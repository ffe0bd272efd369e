"""Connects the parts of the controller of one node and starts their threads.

Modules are imported within functions, so that --help and a usage error need none of them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from controller.intervals import Intervals
from controller.process_inputs import Given
from driver.event_reasons import EventReason
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from driver.process.privileges import CAP_DAC_OVERRIDE, CAP_SYS_ADMIN
from driver.process.probes import Question
from driver.process.service import Service
from driver.roots.driver_roots import DriverRoots
from driver.roots.flag import roots_from_flags

if TYPE_CHECKING:
    from controller.health.incident_store import IncidentStore
    from controller.observe.device_plugin import Consequence
    from controller.observe.node_events import NodeEvents
    from controller.observe.node_watch import NodeLabels
    from controller.observe.observer import Observer
    from controller.plugin.driver_release import DriverRelease
    from controller.plugin.serving import SeveralPlugins
    from controller.plugin.state import PluginState
    from controller.plugin.virtual_functions import VirtualFunctionRequests
    from controller.plugin.watch import PluginWatch
    from controller.publish.publisher import Publisher
    from controller.publish.slice_writer import SliceWriter
    from driver.devices.node_state import NodeState
    from driver.hardware.gpu import Inventory
    from driver.hardware.inventory import Discovery
    from driver.health.health_rules import HealthRules
    from driver.kube.client import KubeClient, Object
    from driver.policy.rules import NodeConfig
    from driver.process.metrics import Metrics

NAME = "gpu-dra-controller"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """The flags, which ``--help`` explains."""

    node_name: str
    kubeconfig: Path | None
    nvml: str
    config: Path | None
    driver_root: str
    host_root: Path
    sysfs_root: Path
    plugin_data_dir: Path
    device_plugin: Consequence
    metrics_addr: str
    health_addr: str


def start(service: Service, options: Options, given: Given) -> None:
    """Start all parts below ``service``; returns once the Node was read.

    Raises ConfigError for a flag that cannot be used, and ApiError if the API server refuses.
    """
    from controller.observe.device_plugin import DevicePlugin
    from controller.observe.node_events import NodeEvents
    from controller.observe.node_watch import NodeLabels
    from controller.observe.observer import Observer
    from controller.plugin.driver_release import DriverRelease
    from controller.publish.slice_writer import SliceWriter
    from driver.devices.names import DRIVER_NAME, checked_node_name
    from driver.kube.client import KubeClient
    from driver.kube.events import EventRecorder
    from driver.process.metrics import Metrics
    from driver.roots.watch import watch_roots

    node = checked_node_name(options.node_name)
    intervals = given.intervals
    metrics = Metrics("controller")
    roots, discovery = _discovery(options, service, metrics)
    client = KubeClient.connect(options.kubeconfig, user_agent=NAME, on_request=metrics.request_ended)
    recorder = EventRecorder(client, NAME, node)
    events = NodeEvents(recorder, node)
    # The lambdas here and below call what is made later: some parts need each other.
    device_plugin = DevicePlugin(
        events,
        lambda found: offers.device_plugin_offers(found),  # noqa: PLW0108 - offers is made below
        options.device_plugin,
    )
    writer = SliceWriter(client, events, metrics, node=node, driver=DRIVER_NAME, on_node=device_plugin.seen)
    publisher = _publisher(service, client, writer, metrics, node, given)
    check_now = Event()
    labels = NodeLabels(client, node, check_now.set)
    rules = _rules(options, events, labels)
    withholds = options.device_plugin == "withhold"
    offers = Observer(
        *(discovery, rules, metrics, events, publisher.offer),
        withholds=withholds,
        on_virtual_off=lambda gpus: virtual.set_wanted(gpus),  # noqa: PLW0108 - virtual is made below
        on_check=_wait_for_events(service, discovery, events, metrics, publisher, check_now.set),
    )
    several_plugins = _several_plugins(service, events, intervals)
    driver_release = DriverRelease(discovery, check_now.set)
    state = _plugin_state(offers, publisher.incidents, driver_release)
    virtual = _virtual_functions(state, events, check_now.set, intervals)
    plugin = _plugin_watch(service, options.plugin_data_dir, publisher, state, several_plugins, intervals)
    ready = _serve_http(service, options, metrics, publisher)

    watch_roots(service, roots, intervals.check_seconds, discovery.close, check_now.set)
    service.repeat("offers", intervals.check_seconds, offers.check, check_now)
    service.spawn("letting-go", driver_release.run, driver_release.stop)
    service.spawn("virtual-functions", virtual.run, virtual.stop)
    service.spawn("plugin-watch", plugin.run, plugin.stop)
    service.spawn("slices-reflector", publisher.reflector.run, publisher.reflector.wake)
    # Nothing is posted or published before the Node was read: events and slices refer to its UID.
    _exit_on_signal()
    _wait_for_node(service, writer)
    _follow_node(service, client, (device_plugin.seen, labels.seen), node)
    service.catch_signals()
    service.spawn("events", recorder.run, recorder.stop)
    _wait_for_turn(service, options.plugin_data_dir, publisher)
    _publish(service, client, events, ready, intervals, publisher)


def _publisher(
    service: Service,
    client: KubeClient,
    writer: SliceWriter,
    metrics: Metrics,
    node: str,
    given: Given,
) -> Publisher:
    """The publisher of the node's slices, with the store of the GPUs' faults."""
    from controller.health.incident_store import IncidentStore
    from controller.publish.publisher import Publisher
    from driver.devices.names import DRIVER_NAME

    return Publisher(
        client,
        writer,
        metrics,
        service.stop_event,
        node=node,
        driver=DRIVER_NAME,
        intervals=given.intervals,
        at_work=lambda: service.pulse.work("publisher"),
        incidents=IncidentStore(
            quiet_seconds=given.intervals.fault_quiet_seconds,
            hold_seconds=given.intervals.fault_hold_seconds,
        ),
    )


def _wait_for_events(
    service: Service,
    discovery: Discovery,
    events: NodeEvents,
    metrics: Metrics,
    publisher: Publisher,
    check_now: Callable[[], None],
) -> Callable[[Inventory, HealthRules, float], None]:
    """Wait for the NVIDIA driver's events in a thread; returns the function to call after each check."""
    from controller.health.gpu_events import connect

    listener, gpus_checked = connect(
        publisher.incidents, discovery, events, metrics, publisher.verdicts_changed, check_now
    )
    service.spawn("GPU events", listener.run, listener.stop)
    return gpus_checked


def needed_capabilities(options: Options) -> set[int]:
    """The capabilities that the controller keeps; it gives up all others of root's."""
    # nvml.h: the calls that list GPU instances and their possible placements need a privileged user.
    of_nvml = {CAP_SYS_ADMIN} if options.nvml == "real" else set()
    # In a pod, all files that it opens belong to root. With a kubeconfig it runs outside of a pod, and opens
    # files of the user who started it.
    return of_nvml | ({CAP_DAC_OVERRIDE} if options.kubeconfig else set())


def _serve_http(service: Service, options: Options, metrics: Metrics, publisher: Publisher) -> _Readiness:
    """Serve metrics and probes; the returned object gets to know what the controller waits for."""
    from controller.publish.device_metrics import OFFERED_SERIES, SICK, offered_numbers, sick_numbers
    from driver.process import metrics as numbers
    from driver.process import probes

    ready = _Readiness(publisher.why_not_published)
    metrics.show(lambda: offered_numbers(*publisher.offered()), *OFFERED_SERIES)
    metrics.show(lambda: sick_numbers(publisher.offered()[0]), SICK)
    metrics.show_number("gpu_dra_publish_age_seconds", publisher.age_seconds)
    numbers.serve(service, options.metrics_addr, metrics)
    probes.serve(service, options.health_addr, probes.Probes(lambda: "", service.pulse.hung, ready.why_not))
    return ready


def _wait_for_turn(service: Service, folder: Path, publisher: Publisher) -> None:
    """Write neither slices nor faults while another controller of this node does."""
    from controller.publish.publish_lock import PublishLock

    incidents = publisher.incidents

    def taken() -> None:
        incidents.keep_in(folder)
        publisher.has_turn()

    publisher.stand_by()
    lock = PublishLock(folder, taken, publisher.another_publishes, service.stop_event)
    service.on_stop("turn", lock.release)
    service.on_stop("incidents", incidents.leave)
    service.spawn("turn", lock.run)


def _publish(
    service: Service,
    client: KubeClient,
    events: NodeEvents,
    ready: _Readiness,
    intervals: Intervals,
    publisher: Publisher,
) -> None:
    """Publish in a thread, once the API server is supported."""
    from controller.publish.server_version import SupportedServer

    again_seconds = intervals.version_again_seconds
    server = SupportedServer(client, events, service.stop_event, ready.wait_for, again_seconds)

    def run() -> None:
        if server.wait():
            publisher.run()

    service.spawn("publisher", run, publisher.stop)


def _exit_on_signal() -> None:
    """Let a signal end the wait for the API server."""
    # The first process of a container is process 1 of its PID namespace, and for that one the kernel ignores
    # a SIGTERM without a handler.

    def end(_number: int, _frame: object) -> None:
        # At once: nothing was published, and the kernel closes what is open. The exception of sys.exit is
        # lost if the handler runs inside a finalizer, and the interpreter's end waits for workers of pools.
        os._exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


def _discovery(options: Options, service: Service, metrics: Metrics) -> tuple[DriverRoots, Discovery]:
    """Where the NVIDIA driver is installed, and the discovery that reads the GPUs with it."""
    from driver.hardware.inventory import Discovery
    from driver.nvml.deadline import Guard
    from fakegpu.nvml.flag import fabric_from_flag, nvml_from_flag

    roots = roots_from_flags(options.driver_root, options.host_root, options.sysfs_root)
    nvml, fabric = nvml_from_flag(options.nvml, roots), fabric_from_flag(options.nvml, roots)
    guard = Guard()
    guard.on_call = metrics.nvml_called
    discovery = Discovery(nvml, options.sysfs_root, guard, fabric)
    # Registered first, so it is closed last, after everything that may use it.
    service.on_stop("nvml", discovery.close)
    return roots, discovery


def _wait_for_node(service: Service, writer: SliceWriter) -> None:
    """Return once the Node was read; raises ApiError if the API server refuses."""
    from driver.kube.backoff import retry_until

    retry_until(
        writer.owner,
        deadline=None,
        stop=service.stop_event,
        on_failure=lambda error, wait_seconds: _log.warning(
            "cannot read the node", error=str(error), again_in_seconds=round(wait_seconds, 2)
        ),
    )


def _follow_node(
    service: Service, client: KubeClient, receivers: Sequence[Callable[[Object], None]], node: str
) -> None:
    """Pass each version of the Node to these functions."""
    from controller.observe.node_watch import NodeWatch

    def seen(found: Object) -> None:
        for receive in receivers:
            receive(found)

    watch = NodeWatch(client, service.stop_event, seen, node=node)
    service.spawn("node-reflector", watch.reflector.run, watch.reflector.wake)


def _several_plugins(service: Service, events: NodeEvents, intervals: Intervals) -> SeveralPlugins:
    """The part that notices two releases of the driver on one node, checked in a thread."""
    from controller.plugin.serving import SeveralPlugins

    def report(sentence: str) -> None:
        _log.warning("several kubelet plugins serve on this node", error=sentence)
        events.post(EventReason.TWO_INSTALLATIONS, sentence)

    several_plugins = SeveralPlugins(report, intervals.companion_seconds)
    service.repeat("companions", intervals.companion_seconds / 10, several_plugins.check)
    return several_plugins


def _plugin_state(offers: Observer, incidents: IncidentStore, driver_release: DriverRelease) -> PluginState:
    """The state that the kubelet plugins report, passed on to the observer and to the store of faults."""
    from controller.plugin.state import PluginState

    def on_state(state: NodeState) -> None:
        offers.plugin_reports(state)
        incidents.plugin_reports(state)

    return PluginState(on_state, driver_release.request, driver_release.name)


def _virtual_functions(
    state: PluginState, events: NodeEvents, check_now: Callable[[], None], intervals: Intervals
) -> VirtualFunctionRequests:
    """The requests to the kubelet plugin to turn on virtual functions."""
    from controller.plugin.virtual_functions import VirtualFunctionRequests

    def failed(pci: PciAddress, why: str) -> None:
        _log.warning("cannot turn on virtual functions", gpu=str(pci), error=why)
        events.post(EventReason.GPU_WITHHELD, f"GPU {pci} is not offered as vGPUs: {why}")

    return VirtualFunctionRequests(state.plugins, failed, check_now, intervals.virtual_again_seconds)


def _plugin_watch(
    service: Service,
    folder: Path,
    publisher: Publisher,
    state: PluginState,
    several_plugins: SeveralPlugins,
    intervals: Intervals,
) -> PluginWatch:
    """The watch of the kubelet plugins: whether they serve, and their state."""
    from controller.plugin.serving import PluginServing
    from controller.plugin.watch import MOST_PLUGINS, PluginWatch

    def count(serving: int) -> None:
        publisher.plugin_serves(serving > 0)
        several_plugins.serving(serving)

    streams = (PluginServing(count).stream(), state.stream())
    pool = service.pool("plugin-listen", MOST_PLUGINS * len(streams))
    return PluginWatch(folder, pool, service.stop_event, streams, intervals)


def _rules(options: Options, events: NodeEvents, labels: NodeLabels) -> Callable[[], NodeConfig | None]:
    """A function that gives the node's rules, None if there is no file."""
    if options.config is None:
        return lambda: None
    # It loads CEL, which a node without rules does not need.
    from controller.observe.rules_file import RulesFile

    return RulesFile(options.config, events, labels.current).current


class _Readiness:
    """Why the controller is not ready: it waits for something, or has not published yet."""

    def __init__(self, published: Question) -> None:
        """``published`` answers why the offers are not published."""
        self._waits_for = "the node has not been read from the API server yet"
        self._published = published

    def wait_for(self, sentence: str) -> None:
        """Note what the controller waits for now; an empty text for nothing."""
        self._waits_for = sentence

    def why_not(self) -> str:
        """Why it is not ready; empty if everything is published or there is nothing to publish."""
        return self._waits_for or self._published()
