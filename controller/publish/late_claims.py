"""Decides how long claims are followed after devices were withdrawn, for allocations that come late: pure.

A scheduler chooses a device, and writes that into the claim only after its plugins have had their turn: one
may wait ten minutes for a volume, or a quarter of an hour for a permit. The device may have been withdrawn
by then, and its counters forgotten. Such an allocation has to block what lies there now.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from controller.publish.changeover import Known, Seen


def followed(known: Known, seen: Seen, seconds: float, now: float, server_time: datetime) -> Known:
    """The same with how long to follow the claims from now on.

    An allocation may still come for ``seconds`` after devices were withdrawn, as they are with the write that
    comes now. While one is told of a device that is published no more, and that the plugin does not hold yet,
    this does not end. The first time the age of what is stored decides, by the API server's time: the
    controller before may have withdrawn devices just now.
    """
    there = {device["name"] for item in seen.slices for device in item["spec"].get("devices") or []}
    offered = {one.name for one in known.offers.devices}
    until = known.follow_until
    if not known.has_followed:
        age = _age(seen.slices, server_time)
        until = None if age is None or age >= seconds else now + seconds - age
    if known.misses_a_claim or not there <= offered:
        until = now + seconds
    if until is not None and now >= until and seen.heeded <= (offered | seen.held):
        until = None
    return replace(known, follow_until=until, has_followed=True)


def _age(stored: Iterable[Mapping[str, Any]], server_time: datetime) -> float | None:
    """Seconds since any of the slices was written last, None where there is none."""
    times = [time for item in stored for time in _written(item["metadata"])]
    return max(0.0, (server_time - max(times)).total_seconds()) if times else None


def _written(metadata: Mapping[str, Any]) -> Iterable[datetime]:
    """When the object was made, and when each of its writers wrote it last (ObjectMeta, managedFields)."""
    fields = [{"time": metadata.get("creationTimestamp")}, *(metadata.get("managedFields") or [])]
    for field in fields:
        try:
            yield datetime.fromisoformat(str(field.get("time")))
        except ValueError:
            continue
