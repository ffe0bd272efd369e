"""A reset by the kubelet plugin ends the faults of before, and none of later."""

from __future__ import annotations

import time

from controller.health.heals import Heals
from controller.health.incident_store import Book
from driver.devices.node_state import Healed, NodeState
from driver.devices.region import Region
from driver.health.incident import Incident
from driver.nvml.pci_address import PciAddress

PCI = PciAddress.parse("0000:8a:00.0")
OTHER = PciAddress.parse("0000:8b:00.0")


def sick(book: Book) -> set[PciAddress]:
    return {verdict.scope.pci for verdict in book.verdicts()}


def healed(*gpus: tuple[PciAddress, int]) -> NodeState:
    """What the plugin tells of GPUs that were reset so many seconds from now."""
    now_milliseconds = int(time.time() * 1000)
    return NodeState(healed=tuple(Healed(pci, now_milliseconds + seconds * 1000) for pci, seconds in gpus))


def test_a_reset_ends_the_faults_of_its_gpu_alone() -> None:
    book = Book()
    for pci in (PCI, OTHER):
        book.told(Incident(Region(pci), 95))
    Heals(book).plugin_tells(healed((PCI, 60)))
    assert sick(book) == {OTHER}


def test_a_fault_of_after_the_reset_stays() -> None:
    book = Book()
    heals = Heals(book)
    book.told(Incident(Region(PCI), 95))
    heals.plugin_tells(healed((PCI, -60)))
    assert sick(book) == {PCI}


def test_the_same_reset_is_told_once() -> None:
    book = Book()
    heals = Heals(book)
    once = healed((PCI, 60))
    heals.plugin_tells(once)
    book.told(Incident(Region(PCI), 95))
    heals.plugin_tells(once)
    assert sick(book) == {PCI}
    heals.plugin_tells(healed((PCI, 90)))
    assert sick(book) == set()
