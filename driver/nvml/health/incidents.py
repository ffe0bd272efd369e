"""Joins the forms in which the NVIDIA driver reports one incident, so that it is counted once.

From R615 on an incident may come as an event bit, which names the XID and the partition, and as a group of
structured events, which name severity, containment and recovery. Neither names the other: what is alike in
GPU and XID within a short time is taken for one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from driver.nvml.health.calls import GpuEvent, Severity

HOLD_SECONDS = 0.1
"""How long a form waits for the other one; an XID has to be a taint within a second."""

ALIKE_SECONDS = 2.0
"""How long after an incident was passed on its other form is still joined to it."""

_SEVERITIES: tuple[Severity | None, ...] = (None, "informational", "corrected", "recoverable", "fatal")


@dataclass(frozen=True, slots=True)
class Heard:
    """One event as NVML gave it; ``group_size`` counts the events of its group, 0 means the old form."""

    event: GpuEvent
    group_size: int = 0

    @property
    def structured(self) -> bool:
        """Whether it is of the new form."""
        return self.group_size > 0


@dataclass(slots=True, eq=False)
class _Incident:
    event: GpuEvent
    due: float
    group_size: int
    heard: int
    old: bool
    structured: bool

    def is_complete(self) -> bool:
        """Whether nothing more is expected: both forms, or one of an event that has no XID."""
        if self.structured and self.heard < self.group_size:
            return False
        return self.event.xid is None or (self.old and self.structured)


class Incidents:
    """Incidents that were received and not yet passed on, and those passed on lately, by a monotonic clock.

    ``structured`` are the UUIDs of the GPUs that report in both forms; the other form of others is not
    awaited.
    """

    def __init__(self, structured: frozenset[str]) -> None:
        self._both = structured
        self._held: deque[_Incident] = deque()
        self._told: deque[_Incident] = deque()

    def hear(self, heard: Heard, now: float) -> None:
        """Take an event: of an incident that is held, of one that was passed on, or of a new one."""
        while self._told and self._told[0].due + ALIKE_SECONDS < now:
            self._told.popleft()
        for one in self._held:
            if _belongs(heard, one):
                _join(one, heard)
                self._unite(one)
                return
        for one in self._told:
            if _belongs(heard, one):
                self._late(one, heard, now)
                return
        self._held.append(self._new(heard, now))

    def ready(self, now: float) -> GpuEvent | None:
        """The next incident that is complete, or has waited long enough; None while there is none."""
        for one in self._held:
            if one.is_complete() or one.due <= now:
                self._held.remove(one)
                if one.event.uuid in self._both and not one.is_complete():
                    self._told.append(one)
                return one.event
        return None

    def due_in(self, now: float) -> float | None:
        """Seconds until ``ready`` has one if no more events come; None where it has none then either."""
        return min((max(one.due - now, 0.0) for one in self._held), default=None)

    def hold_no_longer(self, now: float) -> None:
        """Make everything that is held ready: no more events will come."""
        for one in self._held:
            one.due = min(one.due, now)

    def _unite(self, one: _Incident) -> None:
        """Take in the old form that came before the incident's XID was known by its group."""
        for other in self._held:
            old = Heard(other.event)
            if other is not one and other.old and not other.structured and _belongs(old, one):
                _join(one, old)
                self._held.remove(other)
                return

    def _new(self, heard: Heard, now: float) -> _Incident:
        waits = heard.group_size > 1 or (heard.event.xid is not None and heard.event.uuid in self._both)
        due = now + HOLD_SECONDS if waits else now
        return _Incident(heard.event, due, heard.group_size, 1, not heard.structured, heard.structured)

    def _late(self, one: _Incident, heard: Heard, now: float) -> None:
        """An event after its incident was passed on: the old form adds nothing, the new one no XID."""
        was_structured = one.structured
        _join(one, heard)
        if heard.structured and not was_structured:
            more = replace(heard.event, kind="operational", xid=None)
            self._held.append(_Incident(more, now, 1, 1, old=True, structured=True))


def _belongs(heard: Heard, one: _Incident) -> bool:
    """Whether it is another event of the incident's group, or the form of it that has not come yet."""
    if heard.event.uuid != one.event.uuid:
        return False
    if heard.structured and one.structured:
        return bool(heard.event.incident) and heard.event.incident == one.event.incident
    misses = not one.structured if heard.structured else not one.old
    return misses and heard.event.xid is not None and heard.event.xid == one.event.xid


def _join(one: _Incident, heard: Heard) -> None:
    """What both forms tell together, the worst of what they differ in."""
    new, old = heard.event, one.event
    severity = max(new.severity, old.severity, key=_SEVERITIES.index)
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
    one.group_size = max(one.group_size, heard.group_size)
    one.heard += heard.structured
    one.old = one.old or not heard.structured
    one.structured = one.structured or heard.structured
