"""Connects what hears of faults with what keeps and tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.health.event_poster import Teller
from controller.health.event_thread import EventLane
from controller.health.xid_listener import Hearing
from driver.event_reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.health.incident_store import Book
    from controller.observe.node_events import NodeEvents
    from driver.hardware.gpu import Inventory
    from driver.hardware.inventory import Discovery
    from driver.health.health_rules import HealthRules
    from driver.nvml.mig import GpuInstance
    from driver.nvml.pci_address import PciAddress
    from driver.process.metrics import Metrics


def connect(
    book: Book,
    discovery: Discovery,
    events: NodeEvents,
    metrics: Metrics,
    on_change: Callable[[], None],
    look_now: Callable[[], None],
) -> tuple[EventLane, Callable[[Inventory, HealthRules, float], None]]:
    """The lane that hears events, and what has to know of each look: the GPUs, the rules, and how
    many seconds ago it began.

    ``on_change`` hears when devices have to have other taints.
    """
    teller = Teller(events)

    def changed() -> None:
        on_change()
        teller.tell(book.everything)

    def instances(pci: PciAddress) -> tuple[GpuInstance, ...]:
        return discovery.on_gpu(pci, lambda device, watch: watch("gpu_instances", device.gpu_instances))

    book.on_change = changed
    hearing = Hearing(
        book,
        instances,
        lambda pci, xid: metrics.xid_seen(str(pci), xid),
        lambda sentence: events.post(EventReason.GPU_FAULT, sentence),
        look_now,
    )
    lane = EventLane(discovery.watch_events, hearing, look_now)

    def looked(inventory: Inventory, rules: HealthRules, seconds: float) -> None:
        book.looked(inventory, rules, seconds)
        lane.saw(inventory)

    return lane, looked
