"""Says what an entry of a claim's status changes about the health of its devices: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kubeletplugin.reports.device_status import NOT_HELD, key_of, ready_of


@dataclass(frozen=True, slots=True)
class HealthChange:
    """Sentences for people: of the devices that have fallen ill, or otherwise ill, and of those that are well
    again.
    """

    sick: tuple[str, ...] = ()
    well: tuple[str, ...] = ()


def health_change(before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> HealthChange:
    """What differs between the entries of ``status.devices`` that are stored and those that are written.

    A memory limit that is not held is nothing of the GPU's health, and has events of its own.
    """
    there = {key_of(entry): ready_of(entry) for entry in before}
    sick, well = [], []
    for entry in after:
        now, was = ready_of(entry), there.get(key_of(entry))
        if now is None:
            continue
        if _is_ill(now):
            if was is None or not _is_ill(was) or was.get("reason") != now["reason"]:
                sick.append(f"{entry['device']}: {now['message'] or now['reason']}")
        elif was is not None and _is_ill(was):
            well.append(f"{entry['device']} is well again")
    return HealthChange(tuple(sick), tuple(well))


def _is_ill(ready: Mapping[str, Any]) -> bool:
    return ready.get("status") != "True" and ready.get("reason") != NOT_HELD
