"""The output of ``top`` for people, in plain columns."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.cli.output import columns, some_of
from gpuctl.fleet.memory import bytes_text, held_text
from gpuctl.top.usage import GpuUsage, Group, Lacking

_MOST_NODES = 3


def picture(usage: GpuUsage, *, wide: bool) -> str:
    """A row for each device of each claim, or for each namespace, class or node; then what is not known."""
    if usage.by != "claim":
        return _groups_picture(usage.by, usage.groups, usage.lacking)
    heads = ("claim", "pod", "node", "gpu", "what", "held", "used", "used%", "busy%")
    more = ("class", "device") if wide else ()
    rows = [
        (
            *(one.claim, ", ".join(one.pods) or "-", one.node, one.gpu, one.tier),
            *(held_text(one.part, one.allocated_bytes), _bytes(one.used_bytes)),
            *(_ratio(one.used_bytes, one.allocated_bytes), _percent(one.busy)),
            *((one.device_class or "-", one.device) if wide else ()),
        )
        for one in usage.devices
    ]
    return _with_notes(columns((*heads, *more), rows) if rows else _NOTHING, usage.lacking)


def _groups_picture(by: str, groups: Sequence[Group], lacking: Sequence[Lacking]) -> str:
    heads = (by, "devices", "gpus", "held", "used", "used%", "busy%")
    rows = [
        (
            *(one.name, str(one.devices), f"{one.gpus:g}", _bytes(one.allocated_bytes)),
            *(_bytes(one.used_bytes), _ratio(one.used_bytes, one.measured_bytes), _percent(one.busy)),
        )
        for one in groups
    ]
    untold = sum(one.untold for one in groups)
    note = [f"the use of {untold} of the devices is unknown"] if untold else []
    return _with_notes(columns(heads, rows) if rows else _NOTHING, lacking, note)


_NOTHING = "no claim has a GPU of this driver"


def _with_notes(table: str, lacking: Sequence[Lacking], notes: Sequence[str] = ()) -> str:
    """The table, and below it why numbers are missing, with the nodes of each reason in one line."""
    by_reason: dict[str, list[str]] = {}
    for one in lacking:
        by_reason.setdefault(one.why, []).append(one.node)
    lines = [f"{some_of(nodes, _MOST_NODES)}: no metrics: {reason}" for reason, nodes in by_reason.items()]
    return "\n".join((table, *([""] if lines or notes else []), *notes, *lines))


def _bytes(amount: int | None) -> str:
    return "-" if amount is None else bytes_text(amount)


def _ratio(used: int | None, held: int | None) -> str:
    return "-" if used is None or not held else f"{100 * used / held:.0f}"


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.0f}"
