"""Connects the parts of the controller of one node and starts their threads. What it does is in the parts."""

from __future__ import annotations

import signal
import sys
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
    from controller.observe.allocations import ClaimWatch
    from controller.observe.device_plugin import Consequence, DevicePlugin
    from controller.observe.node_events import NodeEvents
    from controller.observe.node_watch import NodeLabels
    from controller.observe.observer import Observer
    from controller.plugin.driver_release import DriverRelease
    from controller.plugin.serving import SeveralPlugins
    from controller.plugin.state import PluginState
    from controller.plugin.virtual_functions import VirtualFunctionAsking
    from controller.plugin.watch import PluginWatch
    from controller.publish.publisher import Publisher
    from controller.publish.server_floor import ServerFloor
    from controller.publish.slice_writer import SliceWriter
    from driver.devices.node_state import NodeState
    from driver.hardware.gpu import Inventory
    from driver.hardware.inventory import Discovery
    from driver.health.health_rules import HealthRules
    from driver.kinds.kind import Kinds
    from driver.kube.client import KubeClient
    from driver.kube.reflector import Object
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
    """Start all parts below ``service``; returns once the node is known to be there.

    Raises ConfigError for a flag that cannot be used, and ApiError when the API server refuses.
    """
    # Imported here, so that --help and a usage error need none of it.
    from controller.observe.node_events import NodeEvents
    from controller.observe.node_watch import NodeLabels
    from controller.observe.observer import Observer
    from controller.publish.slice_writer import SliceWriter
    from driver.devices.names import DRIVER_NAME, checked_node_name
    from driver.kube.client import KubeClient
    from driver.kube.events import EventRecorder
    from driver.process.metrics import Metrics
    from driver.roots.watch import watch_roots

    node = checked_node_name(options.node_name)
    intervals, kinds = given.intervals, _kinds(given)
    metrics = Metrics("controller")
    roots, discovery = _discovery(options, service, metrics)
    client = KubeClient.connect(options.kubeconfig, user_agent=NAME, on_request=metrics.request_ended)
    recorder = EventRecorder(client, NAME, node)
    events = NodeEvents(recorder, node)
    beside = _device_plugin(options, events, lambda found: offers.device_plugin_offers(found))  # noqa: PLW0108
    writer = SliceWriter(client, events, metrics, node=node, driver=DRIVER_NAME, on_node=beside.seen)
    publisher = _publisher(service, client, writer, metrics, node, given, lambda asked: claims.follow(asked))  # noqa: PLW0108
    look_now = Event()
    labels = NodeLabels(client, node, look_now.set)
    rules = _rules(options, events, labels, kinds)
    withholds = options.device_plugin == "withhold"
    offers = Observer(
        *(discovery, rules, metrics, events, publisher.offer, kinds),
        withholds=withholds,
        on_virtual_off=lambda gpus: virtual.wants(gpus),  # noqa: PLW0108
        on_look=_hear_events(service, discovery, events, metrics, publisher, look_now.set),
    )
    claims = _claim_watch(client, offers, node)
    several_plugins = _several_plugins(service, events, intervals)
    driver_release = _driver_release(discovery, look_now.set)
    state = _plugin_state(offers, publisher.incidents, driver_release)
    virtual = _virtual_functions(state, events, look_now.set, intervals)
    plugin = _plugin_watch(service, options.plugin_data_dir, publisher, state, several_plugins, intervals)
    ready = _serve_http(service, options, metrics, publisher, kinds)

    watch_roots(service, roots, intervals.check_seconds, discovery.close, look_now.set)
    service.repeat("offers", intervals.check_seconds, offers.check, look_now)
    service.spawn("letting-go", driver_release.run, driver_release.stop)
    service.spawn("virtual-functions", virtual.run, virtual.stop)
    service.spawn("plugin-watch", plugin.run)
    service.spawn("slices-reflector", publisher.reflector.run, publisher.reflector.wake)
    _end_by_itself()
    _wait_for_node(service, writer)
    _follow_node(service, client, (beside.seen, labels.seen), node)
    service.catch_signals()
    service.spawn("events", recorder.run, recorder.stop)
    service.spawn("claims", claims.run, claims.stop)
    floor = _server_floor(service, client, events, ready, intervals)
    _wait_for_turn(service, options.plugin_data_dir, publisher)
    service.spawn("publisher", lambda: _publish(floor, publisher), publisher.stop)


def _publisher(
    service: Service,
    client: KubeClient,
    writer: SliceWriter,
    metrics: Metrics,
    node: str,
    given: Given,
    follow_claims: Callable[[bool], None],
) -> Publisher:
    """Keeps the slices of the node as they should be."""
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
        kinds=_kinds(given),
        at_work=lambda: service.pulse.work("publisher"),
        follow_claims=follow_claims,
        incidents=IncidentStore(
            quiet_seconds=given.intervals.fault_quiet_seconds,
            hold_seconds=given.intervals.fault_hold_seconds,
        ),
    )


def _hear_events(
    service: Service,
    discovery: Discovery,
    events: NodeEvents,
    metrics: Metrics,
    publisher: Publisher,
    look_now: Callable[[], None],
) -> Callable[[Inventory, HealthRules, float], None]:
    """Listen to the NVIDIA driver's events in a thread; the function to call after each check of the GPUs."""
    from controller.health.gpu_events import connect

    listener, looked = connect(
        publisher.incidents, discovery, events, metrics, publisher.sick_changed, look_now
    )
    service.spawn("GPU events", listener.run, listener.stop)
    return looked


def _kinds(given: Given) -> Kinds:
    from driver.kinds.registry import KINDS

    return given.kinds() if given.kinds else KINDS


def needed_capabilities(options: Options) -> set[int]:
    """What of root's rights the controller uses: it only reads, and what it opens in a pod is root's.

    nvml.h says of the calls that list GPU instances and their possible placements that they need a
    privileged user. With a kubeconfig it runs outside of a pod, among the files of the user who started it.
    """
    of_nvml = {CAP_SYS_ADMIN} if options.nvml == "real" else set()
    return of_nvml | ({CAP_DAC_OVERRIDE} if options.kubeconfig else set())


def _serve_http(
    service: Service, options: Options, metrics: Metrics, publisher: Publisher, kinds: Kinds
) -> _Readiness:
    """Serve metrics and answer probes; the caller tells the returned object what the controller waits for."""
    from controller.publish.device_metrics import OFFERED_SERIES, SICK, offered_numbers, sick_numbers
    from driver.process import metrics as numbers
    from driver.process import probes

    ready = _Readiness(publisher.why_not_published)
    metrics.show(lambda: offered_numbers(*publisher.offered(), kinds), *OFFERED_SERIES)
    metrics.show(lambda: sick_numbers(publisher.offered()[0]), SICK)
    metrics.show_number("gpu_dra_publish_age_seconds", publisher.age_seconds)
    numbers.serve(service, options.metrics_addr, metrics)
    probes.serve(service, options.health_addr, probes.Probes(lambda: "", service.pulse.hung, ready.why_not))
    return ready


def _server_floor(
    service: Service, client: KubeClient, events: NodeEvents, ready: _Readiness, intervals: Intervals
) -> ServerFloor:
    from controller.publish.server_floor import ServerFloor

    return ServerFloor(client, events, service.stop_event, ready.wait_for, intervals.version_again_seconds)


def _wait_for_turn(service: Service, folder: Path, publisher: Publisher) -> None:
    """Make the publisher write nothing while another controller of this node does."""
    from controller.publish.publish_lock import PublishLock

    publisher.stand_by()
    lock = PublishLock(folder, publisher.has_turn, service.stop_event)
    service.on_stop("turn", lock.give)
    service.spawn("turn", lock.run)


def _publish(floor: ServerFloor, publisher: Publisher) -> None:
    """Publish once the API server is one that is supported."""
    if floor.passed():
        publisher.run()


def _end_by_itself() -> None:
    """Let a signal end the wait for the API server: the kernel ends no process 1, which a container's is."""

    def end(_number: int, _frame: object) -> None:
        sys.exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


def _discovery(options: Options, service: Service, metrics: Metrics) -> tuple[DriverRoots, Discovery]:
    """Where the driver is installed, and the discovery that reads the GPUs with it."""
    from driver.hardware.inventory import Discovery
    from driver.nvml.deadline import Guard
    from fakegpu.nvml.flag import fabric_from_flag, nvml_from_flag

    roots = roots_from_flags(options.driver_root, options.host_root, options.sysfs_root)
    nvml, fabric = nvml_from_flag(options.nvml, roots), fabric_from_flag(options.nvml, roots)
    guard = Guard()
    guard.counter = metrics.nvml_called
    discovery = Discovery(nvml, options.sysfs_root, guard, fabric)
    service.on_stop("nvml", discovery.close)  # after all that may ask
    return roots, discovery


def _wait_for_node(service: Service, writer: SliceWriter) -> None:
    """Return once the API server has given the Node; raises ApiError when it refuses."""
    from driver.kube.backoff import retry_until

    retry_until(
        writer.owner,
        deadline=None,
        stop=service.stop_event,
        on_failure=lambda error, wait_seconds: _log.warning(
            "node not read", error=str(error), again_in_seconds=round(wait_seconds, 2)
        ),
    )


def _claim_watch(client: KubeClient, offers: Observer, node: str) -> ClaimWatch:
    """Watches the claims, and tells the observer which devices they have."""
    from controller.observe.allocations import ClaimWatch
    from driver.devices.names import DRIVER_NAME, pool_name

    return ClaimWatch(client, offers.claims_given, driver=DRIVER_NAME, pool=pool_name(node))


def _device_plugin(
    options: Options, events: NodeEvents, on_change: Callable[[tuple[str, ...]], None]
) -> DevicePlugin:
    """Notices a device plugin on the node."""
    from controller.observe.device_plugin import DevicePlugin

    return DevicePlugin(events, on_change, options.device_plugin)


def _follow_node(
    service: Service, client: KubeClient, told: Sequence[Callable[[Object], None]], node: str
) -> None:
    """Pass each version of the Node to these functions."""
    from controller.observe.node_watch import NodeWatch

    def seen(found: Object) -> None:
        for tell in told:
            tell(found)

    watch = NodeWatch(client, service.stop_event, seen, node=node)
    service.spawn("node-reflector", watch.reflector.run, watch.reflector.wake)


def _several_plugins(service: Service, events: NodeEvents, intervals: Intervals) -> SeveralPlugins:
    """Notices that two releases of the driver are installed on the node."""
    from controller.plugin.serving import SeveralPlugins

    def tell(sentence: str) -> None:
        _log.warning("several kubelet plugins serve", error=sentence)
        events.post(EventReason.TWO_INSTALLATIONS, sentence)

    several_plugins = SeveralPlugins(tell, intervals.companion_seconds)
    service.repeat("companions", intervals.companion_seconds / 10, several_plugins.check)
    return several_plugins


def _driver_release(discovery: Discovery, look_again: Callable[[], None]) -> DriverRelease:
    """Ends the NVML session while the kubelet plugin gives a GPU another kernel driver."""
    from controller.plugin.driver_release import DriverRelease

    return DriverRelease(discovery, look_again)


def _plugin_state(offers: Observer, incidents: IncidentStore, driver_release: DriverRelease) -> PluginState:
    """Takes in the state that the kubelet plugins report."""
    from controller.health.incident_store import EndedByReset
    from controller.plugin.state import PluginState

    resets = EndedByReset(incidents)

    def tell(state: NodeState) -> None:
        offers.plugin_tells(state)
        resets.plugin_tells(state)

    return PluginState(tell, driver_release.asks, driver_release.name)


def _virtual_functions(
    state: PluginState, events: NodeEvents, look_again: Callable[[], None], intervals: Intervals
) -> VirtualFunctionAsking:
    """Has the kubelet plugin turn on virtual functions where the rules say so."""
    from controller.plugin.virtual_functions import VirtualFunctionAsking

    def failed(pci: PciAddress, why: str) -> None:
        _log.warning("virtual functions not turned on", gpu=str(pci), error=why)
        events.post(EventReason.GPU_WITHHELD, f"GPU {pci} is not offered as vGPUs: {why}")

    return VirtualFunctionAsking(state.plugins, failed, look_again, intervals.virtual_again_seconds)


def _plugin_watch(
    service: Service,
    folder: Path,
    publisher: Publisher,
    state: PluginState,
    several_plugins: SeveralPlugins,
    intervals: Intervals,
) -> PluginWatch:
    """Asks the kubelet plugins whether they serve and what they hold, and passes it on."""
    from controller.plugin.serving import PluginServing
    from controller.plugin.watch import MOST_PLUGINS, PluginWatch

    def count(serving: int) -> None:
        publisher.plugin_serves(serving > 0)
        several_plugins.serving(serving)

    streams = (PluginServing(count, state.health_heard, state.health_ended).stream(), state.stream())
    pool = service.pool("plugin-listen", MOST_PLUGINS * len(streams))
    return PluginWatch(folder, pool, service.stop_event, streams, intervals)


def _rules(
    options: Options, events: NodeEvents, labels: NodeLabels, kinds: Kinds
) -> Callable[[], NodeConfig | None]:
    """A function that gives the node's rules, None when no file is given; CEL is loaded only for them."""
    if options.config is None:
        return lambda: None
    from controller.observe.rules_file import RulesFile

    return RulesFile(options.config, events, labels.current, kinds).current


class _Readiness:
    """Why the controller is not ready: it waits for something before it may publish, or has not published."""

    def __init__(self, published: Question) -> None:
        """``published`` answers why what there is to publish is not published."""
        self._waits_for = "the API server has not told of the node yet"
        self._published = published

    def wait_for(self, sentence: str) -> None:
        """From now on this has to come first; an empty text for nothing."""
        self._waits_for = sentence

    def why_not(self) -> str:
        """Why not, empty when everything is published or there is nothing to publish."""
        return self._waits_for or self._published()
