"""Reads the trace of ``gpuctl simulate --trace``: which pods came when, and how long each of them ran.

    arrival,pod,duration,count
    0,notebook,7200,
    90.5,train,3600,4

A trace is CSV with a header. ``arrival`` is in seconds, or a moment such as ``2026-03-01T08:00:00Z``; then
the first moment is second 0. ``pod`` is the name of a group of the workload. ``duration`` is in seconds;
without it a pod runs as long as its group says. ``count`` is how many such pods, or gangs if the group has
gangs, come; 1 without it. Rows may be in any order.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from driver.errors import ConfigError
from gpuctl.simulate.workload import MOST_PODS, PodGroup

_NEEDED, _COLUMNS = ("arrival", "pod"), ("arrival", "pod", "duration", "count")
_LATEST_SECONDS = 1e10
"""Three centuries: later seconds are a mistake, such as nanoseconds."""


class Arrival(NamedTuple):
    """So many pods, or gangs, of the group with this index come, and run so long; None means for ever."""

    seconds: float
    group: int
    pods: int
    lasts_seconds: float | None


class _Wrong(Exception):
    """What is wrong in a row."""


def load_trace(path: Path, groups: Sequence[PodGroup]) -> list[Arrival]:
    """The arrivals of a trace, sorted. Raises ConfigError with the file and line of the first error."""
    rows = csv.reader(())
    try:
        # Spreadsheets put a byte order mark before the first column.
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, strict=True)
            found = _arrivals(rows, groups)
    except OSError as error:
        raise ConfigError(f"the trace {path} cannot be read: {error.strerror}", "check --trace") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the trace {path} is not UTF-8: {error.reason}", "write it as UTF-8") from error
    except (_Wrong, csv.Error) as error:
        where = f"the trace {path}, line {max(1, rows.line_num)}"
        raise ConfigError(f"{where}: {error}", "see `gpuctl simulate --help`") from error
    return sorted(found, key=lambda one: one.seconds)


def _arrivals(rows: Iterable[list[str]], groups: Sequence[PodGroup]) -> list[Arrival]:
    found: list[Arrival] = []
    by_name = {group.name: index for index, group in enumerate(groups)}
    names, pods, moments = None, 0, False
    for row in rows:
        if not row:
            continue
        if names is None:
            names = _header(row)
            continue
        if len(row) != len(names):
            raise _Wrong(f"there are {len(row)} values for {len(names)} columns")
        values = {name: value.strip() for name, value in zip(names, row, strict=True)}
        seconds, is_moment = _arrival(values["arrival"])
        if found and is_moment is not moments:
            raise _Wrong(f"the arrival {values['arrival']} mixes seconds and moments")
        moments = is_moment
        if values["pod"] not in by_name:
            raise _Wrong(f"the workload has no pods named {values['pod'] or 'nothing'}: {', '.join(by_name)}")
        group = by_name[values["pod"]]
        duration, count = values.get("duration"), _count(values.get("count") or "1")
        lasts = _seconds("duration", duration) if duration else groups[group].lasts_seconds
        pods += count * groups[group].gang
        if pods > MOST_PODS:
            raise _Wrong(f"these are more than {MOST_PODS:,} pods")
        found.append(Arrival(seconds, group, count, lasts))
    if not found:
        raise _Wrong(f"there are no pods: write a header with {','.join(_COLUMNS)}, and a row for each pod")
    first = min(one.seconds for one in found) if moments else 0.0
    return [one._replace(seconds=one.seconds - first) for one in found] if first else found


def _header(row: Sequence[str]) -> list[str]:
    names = [name.strip().lower() for name in row]
    if len(set(names)) < len(names) or not set(_NEEDED) <= set(names) <= set(_COLUMNS):
        wanted = f"{','.join(_COLUMNS)}; the last two may be left out"
        raise _Wrong(f"the header is {','.join(row)[:80]}, and not of {wanted}")
    return names


def _arrival(text: str) -> tuple[float, bool]:
    """The arrival in seconds, and whether it was a moment."""
    if ":" not in text:
        return _seconds("arrival", text), False
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise _Wrong(f"the arrival {text[:40]} is not a moment such as 2026-03-01T08:00:00Z") from error
    if moment.tzinfo is None:
        raise _Wrong(f"the arrival {text[:40]} has no time zone: write Z or +01:00 behind it")
    return moment.timestamp(), True


def _seconds(what: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= _LATEST_SECONDS:  # NaN is in no range
        raise _Wrong(f"the {what} {text[:40] or 'is empty and'} is not a number of seconds from 0 to 1e10")
    return seconds


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text[:9]) > 0 and len(text) < 9):
        raise _Wrong(f"the count {text[:40]} is not a number of pods from 1 to {MOST_PODS:,}")
    return int(text)
