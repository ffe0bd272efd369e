"""Says for people what the checks found: a line for each, and below it what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gpuctl.doctor.check import Result, Status

_WORDS: dict[Status, str] = {"ok": "ok", "warn": "warn", "fail": "FAIL", "skipped": "skipped"}
_SHOWN = 6
"""So many things that are meant are shown, unless all are asked for."""

_INDENT = " " * 8


def picture(results: Sequence[Result], *, wide: bool) -> str:
    """All results by their place, then how many there are of each kind; ``wide`` with all details."""
    lines: list[str] = []
    place = None
    for one in results:
        if one.place != place:
            place = one.place
            lines += [place] if not lines else ["", place]
        lines += _lines(one, wide=wide)
    return "\n".join((*lines, "", summary(results)))


def _lines(one: Result, *, wide: bool) -> Iterator[str]:
    yield f"{_WORDS[one.status]:<7} {one.check}: {one.message}"
    if one.status in ("warn", "fail") or wide:
        shown = one.details if wide else one.details[:_SHOWN]
        yield from (f"{_INDENT}- {line}" for line in shown)
        if len(shown) < len(one.details):
            yield f"{_INDENT}- and {len(one.details) - len(shown)} more; -o wide shows all"
    if one.way_out:
        yield f"{_INDENT}what to do: {one.way_out}"


def summary(results: Sequence[Result]) -> str:
    """How many checks of each kind there were."""
    counts = Counter(one.status for one in results)
    told = [f"{counts[status]} {_WORDS[status]}" for status in _WORDS if counts[status]]
    return f"{len(results)} checks: {', '.join(told)}"
