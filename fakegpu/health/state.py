"""The health of one fake GPU, and the events of its machine: values that the state of a machine keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace

from driver.nvml.health.calls import (
    EccErrors,
    FabricHealth,
    GpuEvent,
    RecoveryAction,
    RemappedRows,
)
from driver.nvml.pci_address import PciAddress

MOST_EVENTS = 64
"""How many events a machine keeps; a listener that is further behind has missed some."""


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """The health of a GPU, healthy by default.

    ``recovery_action`` is None if NVML answers a number that this project's binding does not know.
    """

    recovery_action: RecoveryAction | None = "none"
    rows: RemappedRows = RemappedRows(0, 0, pending=False, failed=False)  # noqa: RUF009 - frozen
    page_pending: bool = False
    unrepairable: bool = False
    ecc: EccErrors = EccErrors(0, 0)  # noqa: RUF009 - frozen
    fabric: FabricHealth = FabricHealth("healthy")  # noqa: RUF009 - frozen

    def after_load(self) -> GpuHealth:
        """The health after a reset or after loading the driver again."""
        # Rows are replaced at a reset, and volatile counters start at zero. The replaced rows and memory that
        # cannot be repaired are defects of the board, which stay.
        return GpuHealth(rows=replace(self.rows, pending=False), unrepairable=self.unrepairable)


WELL = GpuHealth()


@dataclass(frozen=True, slots=True)
class FakeEvent:
    """An event of a GPU; ``number`` counts all events of a machine."""

    number: int
    pci: PciAddress
    event: GpuEvent


@dataclass(frozen=True, slots=True)
class EventLog:
    """The last events of a machine, the oldest first; ``next_number`` is that of the next."""

    next_number: int = 1
    events: tuple[FakeEvent, ...] = ()

    def with_event(self, pci: PciAddress, event: GpuEvent, times: int = 1) -> EventLog:
        """The log with one more event, or with the same event several times."""
        new = tuple(FakeEvent(self.next_number + more, pci, event) for more in range(times))
        return EventLog(self.next_number + times, (*self.events, *new)[-MOST_EVENTS:])

    def since(self, number: int, gpus: frozenset[PciAddress]) -> tuple[FakeEvent, ...]:
        """The events of these GPUs from a number on, as far as the log still has them."""
        return tuple(one for one in self.events if one.number >= number and one.pci in gpus)

    def misses(self, number: int) -> bool:
        """Whether the log no longer has all events from a number on."""
        kept_from = self.events[0].number if self.events else self.next_number
        return number < kept_from


NO_EVENTS = EventLog()
