"""The health of one fake GPU, and the events of its machine: values that the state of a machine keeps."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from driver.nvml.health.calls import (
    EccErrors,
    FabricHealth,
    GpuEvent,
    RecoveryAction,
    RemappedRows,
)
from driver.nvml.pci_address import PciAddress

NO_ROWS = RemappedRows(0, 0, pending=False, failed=False)
NO_ERRORS = EccErrors(0, 0)
HEALTHY_FABRIC = FabricHealth("healthy")

MOST_EVENTS = 64
"""How many events a machine keeps; a listener that is further behind than that has missed some."""


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """How well a GPU is.

    ``recovery_action`` is None where NVML answers what this driver does not know.
    """

    recovery_action: RecoveryAction | None = "none"
    rows: RemappedRows = NO_ROWS
    page_pending: bool = False
    unrepairable: bool = False
    ecc: EccErrors = NO_ERRORS
    fabric: FabricHealth = HEALTHY_FABRIC

    @classmethod
    def from_document(cls, document: object) -> GpuHealth:
        """Read what ``dataclasses.asdict`` wrote; raises KeyError, TypeError."""
        if not isinstance(document, dict):
            raise TypeError("health is no mapping")
        known: dict[str, Any] = dict(document)
        known["rows"] = RemappedRows(**known["rows"])
        known["ecc"] = EccErrors(**known["ecc"])
        known["fabric"] = FabricHealth(known["fabric"]["summary"], tuple(known["fabric"]["faults"]))
        return cls(**known)

    def after_load(self) -> GpuHealth:
        """The health after a reset or a new load of the driver: what is worn out stays so.

        Pending rows are replaced then, and counters start at zero.
        """
        return GpuHealth(rows=replace(self.rows, pending=False), unrepairable=self.unrepairable)


WELL = GpuHealth()


@dataclass(frozen=True, slots=True)
class FakeEvent:
    """An event of a GPU; the numbers count all events of a machine."""

    number: int
    pci: PciAddress
    event: GpuEvent

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> FakeEvent:
        """Read what ``to_document`` wrote; raises KeyError, TypeError."""
        pci = PciAddress.parse(document["pci"])
        return cls(document["number"], pci, GpuEvent(**document["event"]))

    def to_document(self) -> dict[str, object]:
        """The event as JSON."""
        return {"number": self.number, "pci": str(self.pci), "event": asdict(self.event)}


@dataclass(frozen=True, slots=True)
class EventLog:
    """The last events of a machine, the oldest first; ``next_number`` is that of the next."""

    next_number: int = 1
    events: tuple[FakeEvent, ...] = ()

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> EventLog:
        """Read what ``to_document`` wrote; raises KeyError, TypeError."""
        events = tuple(FakeEvent.from_document(one) for one in document["events"])
        return cls(document["next_number"], events)

    def to_document(self) -> dict[str, object]:
        """The events as JSON."""
        return {"next_number": self.next_number, "events": [one.to_document() for one in self.events]}

    def with_event(self, pci: PciAddress, event: GpuEvent, times: int = 1) -> EventLog:
        """The events with one more, or the same several times."""
        new = tuple(FakeEvent(self.next_number + more, pci, event) for more in range(times))
        return EventLog(self.next_number + times, (*self.events, *new)[-MOST_EVENTS:])

    def since(self, number: int, gpus: frozenset[PciAddress]) -> tuple[FakeEvent, ...]:
        """The events of these GPUs from a number on, as far as they are kept."""
        return tuple(one for one in self.events if one.number >= number and one.pci in gpus)

    def misses(self, number: int) -> bool:
        """Whether events from a number on are kept no longer."""
        kept_from = self.events[0].number if self.events else self.next_number
        return number < kept_from


NO_EVENTS = EventLog()
