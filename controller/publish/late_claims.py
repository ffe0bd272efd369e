"""Decides how long claims are followed after devices were withdrawn, for allocations that come late.

A scheduler chooses a device, and writes that into the claim only after its plugins have had their turn: one
may wait ten minutes for a volume, or a quarter of an hour for a permit. The device may have been withdrawn
by then, and its counters forgotten. Such an allocation has to block what lies there now.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


class LateClaims:
    """Whether to follow the claims. Used by one thread.

    ``follow`` is told when to begin and when to end; ``seconds`` is how long after the last withdrawal an
    allocation may still come. ``wall_clock`` tells the API server's time, ``clock`` counts
    seconds.
    """

    def __init__(
        self,
        follow: Callable[[bool], None],
        seconds: float,
        wall_clock: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._follow = follow
        self._seconds = seconds
        self._clock = clock
        self._wall_clock = wall_clock
        self._until: float | None = None
        self._began = False

    def check(
        self,
        stored: Iterable[Mapping[str, Any]],
        *,
        withdraws: bool,
        late: bool,
    ) -> None:
        """Begin, go on or end.

        ``withdraws``: devices that are ``stored`` go with the write that comes now. ``late``: a device is
        allocated that is published no more, and that the plugin does not hold yet; before it does, this does
        not end. The first time the age of what is stored decides: the controller before may have withdrawn
        devices just now.
        """
        now = self._clock()
        if not self._began:
            self._began = True
            age = self._age(stored)
            if age is not None and age < self._seconds:
                self._until = now + self._seconds - age
        if withdraws:
            self._until = now + self._seconds
        if self._until is not None and now >= self._until and not late:
            self._until = None
        self._follow(self._until is not None)

    def _age(self, stored: Iterable[Mapping[str, Any]]) -> float | None:
        """Seconds since any of the slices was written last, None where there is none."""
        times = [time for item in stored for time in _written(item["metadata"])]
        if not times:
            return None
        return max(0.0, (self._wall_clock() - max(times)).total_seconds())


def _written(metadata: Mapping[str, Any]) -> Iterable[datetime]:
    """When the object was made, and when each of its writers wrote it last (ObjectMeta, managedFields)."""
    fields = [{"time": metadata.get("creationTimestamp")}, *(metadata.get("managedFields") or [])]
    for field in fields:
        try:
            yield datetime.fromisoformat(str(field.get("time")))
        except ValueError:
            continue
