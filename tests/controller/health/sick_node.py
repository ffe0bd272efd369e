"""A node of a fake machine whose controller looks, hears and publishes, on an embedded API server."""

from __future__ import annotations

import threading
from pathlib import Path

from controller.health.gpu_events import connect
from controller.publish.device_metrics import SICK, sick_numbers
from tests.clusters import EmbeddedApiServer, Metrics, Observer
from tests.controller.heard_events import HeardEvents
from tests.controller.published import Published
from tests.eventually import eventually
from tests.gpus import Discovery, FakeMachine, Guard, NodeConfig, NodeState, gpu_device_name

DOMAIN = "gpu.nvidia.com/"


class SickNode:
    """``look`` looks once, as the controller does at intervals and whenever an event asks for it."""

    def __init__(self, server: EmbeddedApiServer, folder: Path, machine: FakeMachine | None = None) -> None:
        self.machine = machine or FakeMachine.open("hgx-h100")
        self._folder = folder
        self.rules: NodeConfig | None = None
        self.events = HeardEvents()
        self.metrics = Metrics("controller")
        self.guard = Guard(30.0)
        self.discovery = Discovery(self.machine.nvml(), Path("/no-sysfs"), self.guard)
        self.published = Published(server, folder)
        self.incidents = self.published.publisher.incidents
        self.clock = self.published.clock
        offered = self.published.publisher.offered
        self.metrics.show(lambda: sick_numbers(offered()[0]), SICK)
        self.check_now = threading.Event()
        self.looks = 0
        self.listener, looked = connect(
            self.incidents,
            self.discovery,
            self.events,
            self.metrics,
            self.published.publisher.verdicts_changed,
            self.check_now.set,
        )
        self.observer = Observer(
            self.discovery,
            lambda: self.rules,
            self.metrics,
            self.events,
            self.published.publisher.offer,
            on_check=looked,
        )
        self._looking = threading.Lock()
        self._stopped = False
        self._looker = threading.Thread(target=self._look_when_asked)
        self._hearer = threading.Thread(target=self.listener.run)

    def start(self) -> SickNode:
        """Publish what there is, and hear events from then on, as with the turn of this controller."""
        self.incidents.keep_in(self._folder)
        self.observer.plugin_reports(NodeState())
        self.look()
        self.published.start()
        self._looker.start()
        self._hearer.start()
        eventually("it looks again after the first events", lambda: self.looks, lambda looks: looks > 1)
        return self

    def look(self) -> None:
        """Look once."""
        with self._looking:
            self.observer.check()
            self.looks += 1

    def end(self) -> None:
        """Stop all threads."""
        self._stopped = True
        self.check_now.set()
        self.listener.stop()
        self.machine.heal()
        for thread in (self._looker, self._hearer):
            if thread.ident is not None:
                thread.join(10)
                assert not thread.is_alive()
        self.published.end()
        self.discovery.close()
        self.guard.close()

    def _look_when_asked(self) -> None:
        while True:
            self.check_now.wait()
            self.check_now.clear()
            if self._stopped:
                return
            self.look()

    def taints(self) -> dict[str, list[str]]:
        """What is stored: the devices with taints, each with ``xid=95:NoSchedule`` and the like."""
        return {
            device["name"]: [
                f"{one['key'].removeprefix(DOMAIN)}={one.get('value', '')}:{one['effect']}"
                for one in device["taints"]
            ]
            for device in self.published.devices()
            if device.get("taints")
        }

    def name(self, gpu: int) -> str:
        """The device of a whole GPU."""
        return gpu_device_name(self.machine.pci(gpu))

    def becomes(self, taints: dict[int, list[str]]) -> None:
        """Wait until just these GPUs, which are offered whole, have these taints."""
        wanted = {self.name(gpu): found for gpu, found in taints.items()}
        eventually(f"taints {wanted}", self.taints, lambda taints: taints == wanted)

    def series(self, name: str) -> dict[tuple[str, ...], float]:
        """The series of a name as a scrape sees them: the values of the labels, without GPU and UUID."""
        return {
            tuple(text for label, text in sample.labels.items() if label not in ("uuid", "pci_bus_id")): (
                sample.value
            )
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == name
        }

    def told(self, word: str) -> list[str]:
        """The messages of the node's events with this reason."""
        return [message for _, reason, message in self.events.posted if reason == word]
