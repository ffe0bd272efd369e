"""A running publisher and what tests want to know of it."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controller.intervals import Intervals
from controller.observe.node_events import NodeEvents
from controller.publish.publisher import Publisher
from controller.publish.slice_diff import Create, Update
from controller.publish.slice_writer import SliceWriter
from tests.clock import Clock
from tests.clusters import (
    EmbeddedApiServer,
    EventRecorder,
    IncidentStore,
    KubeClient,
    Metrics,
    Object,
    Pulse,
    Unreachable,
)
from tests.eventually import eventually
from tests.gpus import DRIVER_NAME, Device, Offers, PciAddress, gpu_device_name

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
GROUP = "resource.k8s.io"
POOL = "node-a/gpu.nvidia.com"
SETTLE_SECONDS = 0.05


def gpus(count: int, **fields: Any) -> list[Device]:
    """Whole GPUs on buses 0, 1, 2..."""
    addresses = [PciAddress(0, number, 0, 0) for number in range(count)]
    return [
        Device(gpu_device_name(pci), pci, {"index": number}, **fields) for number, pci in enumerate(addresses)
    ]


class WatchedWriter(SliceWriter):
    """Counts how often the publisher looks at the slices.

    It writes no more once ``writes_left`` has come to 0, as if its process had been killed.
    """

    looks = 0
    writes_left = 1 << 62

    def __init__(self, *arguments: Any, **names: Any) -> None:
        super().__init__(*arguments, **names)
        self.refused = threading.Event()

    def check_server(self) -> None:
        self.looks += 1
        super().check_server()

    def delete(self, item: Object) -> None:
        self._count()
        super().delete(item)

    def update(self, update: Update) -> Object:
        self._count()
        return super().update(update)

    def create(self, create: Create, owner: Object) -> Object:
        self._count()
        return super().create(create, owner)

    def _count(self) -> None:
        if self.writes_left <= 0:
            self.refused.set()
            raise Unreachable("no write gets through")
        self.writes_left -= 1


class Published:
    """A publisher of node-a with all its threads; ``start`` begins, ``end`` ends them."""

    def __init__(self, server: EmbeddedApiServer, folder: Path) -> None:
        self.server = server
        self.client = KubeClient.connect(server.write_kubeconfig(folder / "kubeconfig"))
        self.metrics = Metrics()
        self.clock = Clock(1000.0)
        self._stop = threading.Event()
        self.pulse = Pulse(hung_seconds=0.05)
        self._events = EventRecorder(self.client, "test", "node-a")
        self.writer = WatchedWriter(
            self.client,
            NodeEvents(self._events, "node-a"),
            self.metrics,
            node="node-a",
            driver=DRIVER_NAME,
            now=self.clock,
        )
        self.publisher = Publisher(
            self.client,
            self.writer,
            self.metrics,
            self._stop,
            node="node-a",
            driver=DRIVER_NAME,
            intervals=Intervals(settle_seconds=SETTLE_SECONDS),
            incidents=IncidentStore(now=self.clock),
            at_work=lambda: self.pulse.work("publisher"),
        )
        loops = (self.publisher.reflector.run, self._events.run, self.publisher.run)
        self._threads = [threading.Thread(target=loop) for loop in loops]

    def start(self, devices: list[Device] | None = None, *, serving: bool = True) -> None:
        """Start, with these devices offered when there are any."""
        if devices is not None:
            self.offer(devices)
        if serving:
            self.publisher.plugin_serves(True)  # the value is the message
        for thread in self._threads:
            thread.start()

    def runs(self, count: int, **fields: Any) -> None:
        """Start with so many GPUs, and wait until they are published."""
        self.start(gpus(count, **fields))
        self.publishes(count)

    def offer(self, devices: list[Device], held: frozenset[str] = frozenset()) -> None:
        """Offer these devices, which need no counters."""
        self.publisher.offer(Offers(tuple(devices), ()), held)

    def end(self) -> None:
        """Stop all threads that were started."""
        self._stop.set()
        self.publisher.stop()
        self._events.stop()
        self.publisher.reflector.wake()
        self.client.close()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(10)
                assert not thread.is_alive()

    def slices(self) -> list[Object]:
        """The slices as they are stored, in the order of their names."""
        return self.server.objects("resourceslices", GROUP)

    def devices(self) -> list[Object]:
        """The devices of all slices in their order."""
        return [one for item in self.slices() for one in item["spec"].get("devices", [])]

    def device_names(self) -> list[str]:
        """Their names."""
        return [one["name"] for one in self.devices()]

    def becomes(self, condition: Callable[[], object]) -> None:
        """Wait until the server's state fulfils the condition."""
        eventually("the slices become so", condition, context=self.slices)

    def publishes(self, count: int) -> None:
        """Wait until so many devices are published in a complete pool."""
        what = f"{count} devices in a complete pool"
        eventually(what, self.device_names, lambda names: len(names) == count and self.complete())

    def complete(self) -> bool:
        """Whether a scheduler would use the pool: as many slices as they say, all of one generation."""
        pools = [item["spec"]["pool"] for item in self.slices()]
        generations = {pool["generation"] for pool in pools}
        return len(generations) == 1 and {pool["resourceSliceCount"] for pool in pools} == {len(pools)}

    def writes(self) -> int:
        """How many writes of slices were tried so far."""
        verbs = ("create", "update", "delete", "patch")
        return sum(self.server.count(verb, "resourceslices") for verb in verbs)

    def settles(self) -> int:
        """Wait until the publisher has looked twice at its own last write; how many writes there were."""
        self.becomes(lambda: bool(self.slices()))
        newest = max(int(item["metadata"]["resourceVersion"]) for item in self.slices())
        self.becomes(lambda: int(self.publisher.reflector.snapshot()[1] or 0) >= newest)
        for _ in range(2):
            self.look()
        return self.writes()

    def look(self) -> None:
        """Make the publisher sync now."""
        before = self.writer.looks
        self.publisher.plugin_serves(False)
        self.publisher.plugin_serves(True)
        self.becomes(lambda: self.writer.looks > before)
