"""Merges the events by which the NVIDIA driver reports one incident, so that it is counted once.

From R615 on an incident may come in two forms: as an event bit (the old form), with the XID and the
partition, and as a group of structured events, with severity, containment and recovery. Neither form refers
to the other. Events of the same GPU with the same XID within a short time are taken for one incident.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from driver.nvml.health.calls import GpuEvent, Severity

HOLD_SECONDS = 0.1
"""How long an event waits for the other form. An XID has to become a taint within a second."""

ALIKE_SECONDS = 2.0
"""How long after an incident was passed on its other form still belongs to it."""

_SEVERITIES: tuple[Severity | None, ...] = (None, "informational", "corrected", "recoverable", "fatal")


@dataclass(frozen=True, slots=True)
class Received:
    """One event as it came from NVML. ``group_size`` is the size of its group, 0 for the old form."""

    event: GpuEvent
    group_size: int = 0

    @property
    def structured(self) -> bool:
        """Whether it is a structured event."""
        return self.group_size > 0


@dataclass(slots=True, eq=False)
class _Incident:
    event: GpuEvent
    due: float
    group_size: int
    received: int
    old: bool
    structured: bool

    def is_complete(self) -> bool:
        """Whether nothing more is expected: it has both forms, or no XID and so only one form."""
        if self.structured and self.received < self.group_size:
            return False
        return self.event.xid is None or (self.old and self.structured)


class Incidents:
    """Incidents that wait to be passed on, and those passed on lately. Times are of a monotonic clock.

    ``structured`` are the UUIDs of the GPUs that report in both forms. Only
    their events wait for the other form.
    """

    def __init__(self, structured: frozenset[str]) -> None:
        self._in_both_forms = structured
        self._held: deque[_Incident] = deque()
        self._passed_on: deque[_Incident] = deque()

    def add(self, received: Received, now: float) -> None:
        """Add an event to an incident that waits, or to one that was passed on, or make a new incident."""
        while self._passed_on and self._passed_on[0].due + ALIKE_SECONDS < now:
            self._passed_on.popleft()
        for one in self._held:
            if _is_part_of(received, one):
                _merge(one, received)
                self._merge_old_form(one)
                return
        for one in self._passed_on:
            if _is_part_of(received, one):
                self._add_late(one, received, now)
                return
        self._held.append(self._new(received, now))

    def ready(self, now: float) -> GpuEvent | None:
        """The next incident that is complete or has waited long enough; None if there is none."""
        for one in self._held:
            if one.is_complete() or one.due <= now:
                self._held.remove(one)
                # Only then can its other form still come.
                if one.event.uuid in self._in_both_forms and not one.is_complete():
                    self._passed_on.append(one)
                return one.event
        return None

    def due_in(self, now: float) -> float | None:
        """Seconds until ``ready`` returns an incident if no more events come; None if no incident waits."""
        return min((max(one.due - now, 0.0) for one in self._held), default=None)

    def release_all(self, now: float) -> None:
        """Make all incidents that wait ready: no more events will come."""
        for one in self._held:
            one.due = min(one.due, now)

    def _merge_old_form(self, one: _Incident) -> None:
        """Merge an old form that came before a structured event with the XID of this incident."""
        for other in self._held:
            old = Received(other.event)
            if other is not one and other.old and not other.structured and _is_part_of(old, one):
                _merge(one, old)
                self._held.remove(other)
                return

    def _new(self, received: Received, now: float) -> _Incident:
        waits = received.group_size > 1 or (
            received.event.xid is not None and received.event.uuid in self._in_both_forms
        )
        due = now + HOLD_SECONDS if waits else now
        return _Incident(
            received.event, due, received.group_size, 1, not received.structured, received.structured
        )

    def _add_late(self, one: _Incident, received: Received, now: float) -> None:
        """Add an event to an incident that was passed on already."""
        was_structured = one.structured
        _merge(one, received)
        # An old form adds nothing to what was passed on. A structured one adds its severity. It goes out
        # without the XID, which must not be counted twice.
        if received.structured and not was_structured:
            more = replace(received.event, kind="operational", xid=None)
            self._held.append(_Incident(more, now, 1, 1, old=True, structured=True))


def _is_part_of(received: Received, one: _Incident) -> bool:
    """Whether an event is of the incident's group, or the form of the incident that has not come yet."""
    if received.event.uuid != one.event.uuid:
        return False
    if received.structured and one.structured:
        # All events of a group have the same cursor, whatever else they say.
        return bool(received.event.incident) and received.event.incident == one.event.incident
    # An incident takes each form once: a second event of the same form is a second incident.
    misses = not one.structured if received.structured else not one.old
    return misses and received.event.xid is not None and received.event.xid == one.event.xid


def _merge(one: _Incident, received: Received) -> None:
    """Add what an event says to the incident. Where the two differ, the worse counts."""
    new, old = received.event, one.event
    severity = max(new.severity, old.severity, key=_SEVERITIES.index)
    # None means that the form does not report it, and never hides a False.
    contained = new.contained if old.contained is None else old.contained and new.contained is not False
    xid = old.xid if old.xid is not None else new.xid
    one.event = replace(
        old,
        kind="xid" if xid is not None else old.kind,
        xid=xid,
        gpu_instance=new.gpu_instance if old.gpu_instance is None else old.gpu_instance,
        compute_instance=new.compute_instance if old.compute_instance is None else old.compute_instance,
        severity=severity,
        contained=contained,
        recovered=old.recovered or new.recovered,
        component_reset=old.component_reset or new.component_reset,
        dropped=old.dropped or new.dropped,
        incident=old.incident or new.incident,
    )
    one.group_size = max(one.group_size, received.group_size)
    one.received += received.structured
    one.old = one.old or not received.structured
    one.structured = one.structured or received.structured
