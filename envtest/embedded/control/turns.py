"""Gives each object its turn in a loop: one that fails is left for a while, and stops no other."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from driver.process.log import get_logger
from envtest.embedded.api import unforeseen
from envtest.embedded.api.statuses import Refused
from envtest.embedded.control.objects import ApiDown, uid_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Object = dict[str, Any]

_log = get_logger(__name__)

AGAIN_SECONDS = 0.2
"""After a write that was refused, by a conflict mostly; the change behind it usually comes first."""

FIRST_BACK_OFF_SECONDS, LAST_BACK_OFF_SECONDS = 1.0, 10.0
"""After an unforeseen error; the wait doubles with each that follows."""


@dataclass(frozen=True, slots=True)
class _Failed:
    """How often in a row an object failed, as which version, and until when it is left (time.monotonic)."""

    times: int
    version: str
    until: float


class Turns:
    """The turns of one loop. For one thread."""

    def __init__(self, loop: str) -> None:
        self._loop = loop
        self._failed: dict[str, _Failed] = {}

    def give(self, items: Iterable[Object], work: Callable[[Object], float | None]) -> float | None:
        """Have ``work`` done for each object; in how many seconds the first of them is due, if one is.

        ``work`` answers that for its object. Where it raises Refused it is called again soon, where it
        raises anything else with a back-off and a note of it; sooner when the object changes. ApiDown
        is raised.
        """
        waits: list[float] = []
        seen = set()
        for item in items:
            uid = uid_of(item)
            seen.add(uid)
            rest = self._rest(item)
            due = rest if rest > 0 else self._worked(item, work)
            if due is not None:
                waits.append(due)
        self._failed = {uid: failed for uid, failed in self._failed.items() if uid in seen}
        return min(waits, default=None)

    def _rest(self, item: Object) -> float:
        """How long an object that failed is still left."""
        failed = self._failed.get(uid_of(item))
        if failed is None or failed.version != item["metadata"].get("resourceVersion"):
            return 0.0
        return failed.until - time.monotonic()

    def _worked(self, item: Object, work: Callable[[Object], float | None]) -> float | None:
        uid = uid_of(item)
        before = self._failed.get(uid)
        times = 1 if before is None else before.times + 1
        try:
            due = work(item)
        except ApiDown:
            raise
        except Refused as refused:
            _log.info("object has to be looked at again", loop=self._loop, uid=uid, error=str(refused))
            wait = back_off_seconds(times, AGAIN_SECONDS)
        except Exception as error:  # noqa: BLE001 - one object must not stop the loop for the others
            metadata = item["metadata"]
            where = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}".lstrip("/")
            unforeseen.note(f"{self._loop} at {where}", error)
            wait = back_off_seconds(times)
        else:
            self._failed.pop(uid, None)
            return due
        version = item["metadata"].get("resourceVersion", "")
        self._failed[uid] = _Failed(times, version, time.monotonic() + wait)
        return wait


def back_off_seconds(times: int, first: float = FIRST_BACK_OFF_SECONDS) -> float:
    """How long to wait after so many failures in a row: ``first``, then twice as long, 10 s at most."""
    return min(first * 2.0 ** min(times - 1, 30), LAST_BACK_OFF_SECONDS)
