"""The loop of a controller: calls a function after every change of objects, and at times that it asks for.

Objects that fail are left alone for a while, and do not stop the others.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from envtest.embedded.api import unforeseen
from envtest.embedded.api.statuses import Refused
from envtest.embedded.control import kinds
from envtest.embedded.control.objects import ApiDown, Objects, uid_of
from envtest.embedded.control.threads import Threads
from envtest.embedded.server import EmbeddedApiServer

_log = logging.getLogger(__name__)

Object = dict[str, Any]

AGAIN_SECONDS = 0.2
"""The wait after a refused write, mostly a conflict; the change behind it usually ends the wait earlier."""

FIRST_BACK_OFF_SECONDS, LAST_BACK_OFF_SECONDS = 1.0, 10.0
"""After an unforeseen error; the wait doubles with each that follows."""


class ChangeLoop:
    """Calls ``sync`` after every change of ``resources``, and when the time is over that it asked for.

    ``sync`` returns seconds, or None when only a change can give it something to do. It is called once
    at the start, not while the API server is stopped, and never twice at the same time. After an unexpected
    exception, which is noted, it is called again with a back-off: a loop ends with the cluster only.
    """

    def __init__(
        self,
        name: str,
        server: EmbeddedApiServer,
        resources: Sequence[kinds.Kind],
        sync: Callable[[], float | None],
    ) -> None:
        self._name = name
        self._server = server
        self._collections = [resource.collection for resource in resources]
        self._condition = server.store.condition(*self._collections)
        self._sync = sync
        self._asked = False
        self._ended = False
        self._failures = 0

    def start(self, threads: Threads) -> None:
        """Run in one of these threads, until they stop."""
        threads.spawn(self._name, self._run, self._end)

    def ask(self) -> None:
        """Have ``sync`` called soon, for another reason than a change of an object."""
        with self._condition:
            self._asked = True
            self._condition.notify_all()

    def _run(self) -> None:
        store = self._server.store
        while not self._ended:
            with self._condition:
                # The version from before the pass: changes that come while it runs call for another one. Its
                # own writes do so too, until a pass changes nothing.
                seen, self._asked = store.resource_version, False
            # A pass that is left out while the server is stopped is made up for when it runs again.
            missed = not self._server.running
            due = None if missed else self._synced()
            deadline = None if due is None else time.monotonic() + due
            with self._condition:
                while not self._has_to_sync(seen, missed=missed):
                    rest = None if deadline is None else deadline - time.monotonic()
                    if rest is not None and rest <= 0:
                        break
                    self._condition.wait(rest)

    def _synced(self) -> float | None:
        """What ``sync`` returns; a short time if a write was refused; 0 after a fault and its back-off."""
        try:
            due = self._sync()
        except (Refused, ApiDown) as error:
            _log.info("the %s has to look again: %s", self._name, error)
            return AGAIN_SECONDS
        except Exception as error:  # noqa: BLE001 - the loop has to go on whatever an object does to it
            self._failures += 1
            unforeseen.note(self._name, error)
            self._rest(back_off_seconds(self._failures))
            return 0.0
        self._failures = 0
        return due

    def _rest(self, seconds: float) -> None:
        """Wait so long, or until the end, whatever changes: the next call may fail as this one did."""
        with self._condition:
            self._condition.wait_for(lambda: self._ended, seconds)

    def _has_to_sync(self, seen: int, *, missed: bool) -> bool:
        """Whether to call ``sync`` before its time: never while the API server is stopped."""
        if self._ended:
            return True
        if not self._server.running:
            return False
        store = self._server.store
        return missed or self._asked or any(store.last_change(one) > seen for one in self._collections)

    def _end(self) -> None:
        with self._condition:
            self._ended = True
            self._condition.notify_all()


class Controller(ABC):
    """A controller of the cluster: calls ``sync`` after each change of ``watched``."""

    def __init__(self, name: str, server: EmbeddedApiServer, watched: Sequence[kinds.Kind]) -> None:
        self._objects = Objects(server)
        self._threads = Threads()
        self._loop = ChangeLoop(name, server, watched, self.sync)

    def start(self) -> None:
        """Run in a thread of its own until ``stop``."""
        self._loop.start(self._threads)

    def stop(self) -> None:
        """End the thread."""
        self._threads.stop()

    @abstractmethod
    def sync(self) -> float | None:
        """Reconcile all objects once; returns in how many seconds this is due again, None for never."""


def earliest(*seconds: float | None) -> float | None:
    """The least of these waits; None where there is none."""
    return min((one for one in seconds if one is not None), default=None)


@dataclass(frozen=True, slots=True)
class _Failed:
    """How often in a row an object failed, as which version, and until when it is left (time.monotonic)."""

    times: int
    version: str
    until: float


class ObjectBackOff:
    """Works on objects one by one, and leaves one alone for a while after it failed. For one thread."""

    def __init__(self, loop: str) -> None:
        self._loop = loop
        self._failed: dict[str, _Failed] = {}

    def for_each(self, items: Iterable[Object], work: Callable[[Object], float | None]) -> float | None:
        """Call ``work`` for each object; returns in how many seconds the first is due again, if any is.

        ``work`` returns the same for its object. If it raises, the object is left alone until it changes:
        after Refused for a moment at most, after any other exception, which is noted, for longer. ApiDown is
        raised.
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
        # Objects that are gone are forgotten.
        self._failed = {uid: failed for uid, failed in self._failed.items() if uid in seen}
        return min(waits, default=None)

    def _rest(self, item: Object) -> float:
        """How long an object that failed is still left alone."""
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
            _log.info("the %s has to look at %s again: %s", self._loop, uid, refused)
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
