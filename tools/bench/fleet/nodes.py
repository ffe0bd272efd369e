"""Runs the publishing and watching parts of many nodes in one process, without GPUs of their own.

It reads its nodes as JSON from the first line of stdin, and then a word in each line: ``start`` connects all
nodes, ``check`` makes them read the node configuration again, ``fault`` reports a fatal XID on some of them.
Each line, the first one as well, is answered with ``done``.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.intervals import Intervals
from controller.observe.node_events import NodeEvents
from controller.observe.node_watch import NodeLabels, NodeWatch
from controller.observe.observer import Observer
from controller.observe.rules_file import RulesFile
from controller.publish.publisher import Publisher
from controller.publish.server_version import SupportedServer
from controller.publish.slice_writer import SliceWriter
from driver.devices.names import DRIVER_NAME
from driver.devices.node_state import NodeState
from driver.devices.region import Region
from driver.hardware.gpu import Gpu
from driver.hardware.inventory import Discovery
from driver.health.judge import Incident
from driver.kube.backoff import retry_until
from driver.kube.client import KubeClient
from driver.kube.events import EventRecorder
from driver.nvml.deadline import Guard
from driver.nvml.pci_address import PciAddress
from driver.policy.offers import Offers
from driver.process.log import configure
from driver.process.metrics import Metrics
from driver.process.service import Service
from fakegpu.driver_files.driver_root import build_sysfs
from fakegpu.machine.fake_machine import FakeMachine
from kubeletplugin.reports.published import PublishedDevices, follow_slices

FATAL_XID = 79
_COMPONENT = "gpu-dra-controller"


@dataclass(frozen=True, slots=True)
class Member:
    """A node, and the kubeconfigs of its controller and its kubelet plugin."""

    name: str
    controller: str
    plugin: str
    is_faulty: bool


class _Node:
    """The controller of one node as ``controller/wiring.py`` connects it, and the plugin's watch of slices.

    Left out are the parts that only look at the node itself: NVML, the plugin's sockets, probes, metrics.
    """

    def __init__(self, member: Member, service: Service, metrics: Metrics) -> None:
        name, intervals = member.name, Intervals()
        self._name, self._service = name, service
        self._client = KubeClient.connect(Path(member.controller), user_agent=_COMPONENT)
        self._plugin_client = KubeClient.connect(Path(member.plugin), user_agent="gpu-dra-kubeletplugin")
        self._recorder = EventRecorder(self._client, _COMPONENT, name)
        self.events = NodeEvents(self._recorder, name)
        self._writer = SliceWriter(self._client, self.events, metrics, node=name, driver=DRIVER_NAME)
        self._publisher = Publisher(
            *(self._client, self._writer, metrics, service.stop_event),
            node=name,
            driver=DRIVER_NAME,
            intervals=intervals,
        )
        self._publisher.incidents.on_change = self._publisher.verdicts_changed
        self.labels = NodeLabels(self._client, name, lambda: None)
        self._server = SupportedServer(
            *(self._client, self.events, service.stop_event),
            lambda _sentence: None,
            intervals.version_again_seconds,
        )

    def offer(self, offers: Offers, held: frozenset[str], gpus: tuple[Gpu, ...]) -> None:
        """Publish this from now on."""
        self._publisher.offer(offers, held, gpus)

    def report_fault(self, pci: PciAddress) -> None:
        """Let the NVIDIA driver report a fatal XID of this GPU."""
        self._publisher.incidents.report(Incident(Region(pci, None), FATAL_XID))

    def start(self) -> None:
        """Start the threads, in the order of the controller and the plugin."""
        spawn, stop = self._service.spawn, self._service.stop_event
        plugin = follow_slices(self._plugin_client, self._name, DRIVER_NAME, PublishedDevices(), stop)
        spawn("plugin", plugin.run, plugin.wake)
        spawn("slices", self._publisher.reflector.run, self._publisher.reflector.wake)
        spawn("publisher", self._publish, self._publisher.stop)

    def _publish(self) -> None:
        stop = self._service.stop_event
        retry_until(self._writer.owner, deadline=None, stop=stop)
        watch = NodeWatch(self._client, stop, self.labels.seen, node=self._name)
        self._service.spawn("node", watch.reflector.run, watch.reflector.wake)
        self._service.spawn("events", self._recorder.run, self._recorder.stop)
        self._publisher.plugin_serves(serving=True)
        if self._server.wait():
            self._publisher.run()


def run(
    service: Service, members: Sequence[Member], machine: str, configuration: Path, words: Iterable[str]
) -> Iterator[None]:
    """Obey the words one after the other; yields when all is prepared, and after each word."""
    metrics, fake = Metrics("controller"), FakeMachine.open(machine)
    nodes = [_Node(member, service, metrics) for member in members]

    def offer(offers: Offers, held: frozenset[str], gpus: tuple[Gpu, ...]) -> None:
        for node in nodes:
            node.offer(offers, held, gpus)

    with tempfile.TemporaryDirectory(prefix="bench-fleet-") as folder:
        # All nodes have the same GPUs, which are read once. Real nodes read them on cores of their own.
        discovery = Discovery(fake.nvml(), build_sysfs(Path(folder), fake), Guard(), fake.fabric.manager())
        rules = RulesFile(configuration, nodes[0].events, nodes[0].labels.current)
        observer = Observer(discovery, rules.current, metrics, nodes[0].events, offer)
        observer.plugin_reports(NodeState())
        gpus = sorted(fake.state.gpus)
        yield
        for word in words:
            if word == "fault":
                for node, member in zip(nodes, members, strict=True):
                    if member.is_faulty:
                        node.report_fault(gpus[0])
            else:
                observer.check()
            if word == "start":
                for node in nodes:
                    node.start()
            yield


def main() -> None:
    """Run the nodes until stdin ends."""
    configure("error")
    given: dict[str, Any] = json.loads(sys.stdin.readline())
    members = [Member(**one) for one in given["members"]]
    # The objects of hundreds of nodes take long to search, and hardly any is in a circle.
    gc.disable()
    # A thread needs little stack, and there are thousands.
    threading.stack_size(256 * 1024)
    words = map(str.strip, sys.stdin)
    for _ in run(Service(), members, given["machine"], Path(given["configuration"]), words):
        print("done", flush=True)


if __name__ == "__main__":
    main()
