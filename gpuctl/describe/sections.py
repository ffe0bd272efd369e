"""A description and its sections: fields, and rows below their heads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gpuctl.cli.cluster import event_time
from gpuctl.cli.output import columns, in_one_line

MOST_EVENTS = 20


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a description."""

    title: str
    fields: Mapping[str, str] = field(default_factory=dict)
    rows: Sequence[Mapping[str, str]] = ()
    """The cells of each row by the heads of their columns, which all rows have."""

    note: str | None = None
    drawing: str | None = None
    """A picture for people."""

    def text(self) -> str:
        """The section for people, indented below its title."""
        width = max(map(len, self.fields), default=0) + 1
        lines = [f"{f'{name}:'.ljust(width)}  {in_one_line(value)}" for name, value in self.fields.items()]
        if self.rows:
            lines += columns([*self.rows[0]], [[*row.values()] for row in self.rows]).splitlines()
        lines += [*(self.drawing or "").splitlines(), *(self.note or "").splitlines()]
        return "\n".join([self.title, *(f"  {line}".rstrip() for line in lines or ["none"])])


@dataclass(frozen=True, slots=True)
class Description:
    """What `gpuctl describe` prints: all about a node, a GPU or a claim, in sections.

    Sections, fields and columns may be added.
    """

    of: Literal["node", "gpu", "claim"]
    name: str
    """The node; NODE/INDEX of a GPU; namespace and name of a claim."""

    sections: Sequence[Section]


def fields(values: Mapping[str, object]) -> dict[str, str]:
    """The fields whose value is known: neither None nor empty."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
        if value not in (None, "")
    }


def events_section(events: Sequence[Mapping[str, Any]] | None) -> Section:
    """Events, the newest last; None if they may not be read."""
    if events is None:
        return Section("Events", note="you may not read events")
    ordered = sorted(events, key=event_time)
    left_out = len(ordered) - MOST_EVENTS
    rows = [
        {
            "last": event_time(event) or "-",
            "type": str(event.get("type") or "-"),
            "reason": str(event.get("reason") or "-"),
            "count": str((event.get("series") or {}).get("count") or event.get("count") or 1),
            "message": str(event.get("message") or event.get("note") or ""),
        }
        for event in ordered[-MOST_EVENTS:]
    ]
    return Section(
        "Events", rows=rows, note=f"{left_out} older events are not shown" if left_out > 0 else None
    )


def conditions_section(conditions: Iterable[tuple[str, Mapping[str, Any]]]) -> Section:
    """Conditions, each with the name of what it is about."""
    rows = [
        {
            "of": about,
            "type": str(condition.get("type") or "-"),
            "status": str(condition.get("status") or "-"),
            "since": str(condition.get("lastTransitionTime") or "-"),
            "reason": str(condition.get("reason") or "-"),
            "message": str(condition.get("message") or ""),
        }
        for about, condition in conditions
    ]
    return Section("Conditions", rows=rows)
