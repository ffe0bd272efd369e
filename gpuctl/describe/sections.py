"""The sections of a description: fields, and rows below their heads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.cli.cluster import event_time
from gpuctl.cli.output import columns, in_one_line

MOST_EVENTS = 20


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a description. ``fields`` are names with values; ``rows`` have the cells below ``heads``.

    ``note`` is a sentence at the end, ``drawing`` a picture that only people get.
    """

    title: str
    fields: tuple[tuple[str, str], ...] = ()
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    note: str | None = None
    drawing: str = ""

    def as_data(self) -> dict[str, Any]:
        """The section for scripts; each row has its cells by their heads."""
        return {
            "title": self.title,
            "fields": dict(self.fields),
            "rows": [dict(zip(self.heads, row, strict=True)) for row in self.rows],
            **({"note": self.note} if self.note else {}),
        }

    def text(self) -> str:
        """The section for people, indented below its title."""
        width = max((len(name) for name, _ in self.fields), default=0) + 1
        lines = [f"{f'{name}:'.ljust(width)}  {in_one_line(value)}" for name, value in self.fields]
        if self.rows:
            lines += columns(self.heads, self.rows).splitlines()
        lines += self.drawing.splitlines()
        lines += [self.note] if self.note else []
        return "\n".join([self.title, *(f"  {line}".rstrip() for line in lines or ["none"])])


def fields(*pairs: tuple[str, object]) -> tuple[tuple[str, str], ...]:
    """The pairs whose value is known: neither None nor empty."""
    return tuple((name, str(value)) for name, value in pairs if value not in (None, ""))


def events_section(events: Sequence[Mapping[str, Any]] | None) -> Section:
    """Events, the newest last; None if they may not be read."""
    if events is None:
        return Section("Events", note="you may not read events")
    ordered = sorted(events, key=event_time)
    shown = ordered[-MOST_EVENTS:]
    left_out = len(ordered) - len(shown)
    return Section(
        "Events",
        heads=("last", "type", "reason", "count", "message"),
        rows=tuple(_event(one) for one in shown),
        note=f"{left_out} older events are not shown" if left_out else None,
    )


def _event(event: Mapping[str, Any]) -> tuple[str, ...]:
    count = (event.get("series") or {}).get("count") or event.get("count") or 1
    return (
        *(event_time(event) or "-", str(event.get("type") or "-"), str(event.get("reason") or "-")),
        *(str(count), str(event.get("message") or event.get("note") or "")),
    )


def conditions_section(conditions: Iterable[tuple[str, Mapping[str, Any]]]) -> Section:
    """Conditions, each with the name of what it is about."""
    return Section(
        "Conditions",
        heads=("of", "type", "status", "since", "reason", "message"),
        rows=tuple(
            (
                *(about, str(one.get("type") or "-"), str(one.get("status") or "-")),
                *(str(one.get("lastTransitionTime") or "-"), str(one.get("reason") or "-")),
                str(one.get("message") or ""),
            )
            for about, one in conditions
        ),
    )
