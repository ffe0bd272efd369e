"""Calls a function after every change of the objects that it looks at, and at the times that it asks for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from driver.process.log import get_logger
from envtest.embedded.api import unforeseen
from envtest.embedded.api.statuses import Refused
from envtest.embedded.control.objects import ApiDown
from envtest.embedded.control.turns import AGAIN_SECONDS, back_off_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from driver.process.service import Service
    from envtest.embedded.api.server import EmbeddedApiServer
    from envtest.embedded.control.objects import Resource

_log = get_logger(__name__)


class ChangeLoop:
    """One of the cluster's loops: ``sync`` brings everything in order and says when it is due again.

    ``sync`` returns seconds, or None when only a change can give it something to do. It is called once
    at the start, not while the API server is stopped, and never twice at the same time. When it raises
    what nobody had thought of, that is noted, and ``sync`` is called again with a back-off: a loop
    ends with the cluster only.
    """

    def __init__(
        self,
        name: str,
        server: EmbeddedApiServer,
        resources: Sequence[Resource],
        sync: Callable[[], float | None],
    ) -> None:
        self._name = name
        self._server = server
        self._collections = [resource.collection for resource in resources]
        self._sync = sync
        self._asked = False
        self._ended = False
        self._failures = 0

    def start(self, service: Service) -> None:
        """Run in a thread of ``service``, until that stops."""
        service.spawn(self._name, self._run, stop=self._end)

    def ask(self) -> None:
        """Have ``sync`` called soon, for a reason that is no change of an object."""
        with self._server.store.changed:
            self._asked = True
            self._server.store.changed.notify_all()

    def _run(self) -> None:
        store = self._server.store
        while not self._ended:
            with store.changed:
                seen, self._asked = store.resource_version, False
            missed = not self._server.running
            due = None if missed else self._synced()
            deadline = None if due is None else time.monotonic() + due
            with store.changed:
                while not self._has_to_look(seen, missed=missed):
                    rest = None if deadline is None else deadline - time.monotonic()
                    if rest is not None and rest <= 0:
                        break
                    store.changed.wait(rest)

    def _synced(self) -> float | None:
        """What ``sync`` says, or soon, when a write was refused; after a fault, when its time is over."""
        try:
            due = self._sync()
        except (Refused, ApiDown) as error:
            _log.info("loop has to look again", loop=self._name, error=str(error))
            return AGAIN_SECONDS
        except Exception as error:  # noqa: BLE001 - the loop has to go on whatever an object does to it
            self._failures += 1
            unforeseen.note(self._name, error)
            self._rest(back_off_seconds(self._failures))
            return 0.0
        self._failures = 0
        return due

    def _rest(self, seconds: float) -> None:
        """Wait so long, or until the end, whatever changes: each call might fail as the last did."""
        with self._server.store.changed:
            self._server.store.changed.wait_for(lambda: self._ended, seconds)

    def _has_to_look(self, seen: int, *, missed: bool) -> bool:
        """Whether there is a reason to call ``sync`` before its time, and an API server to look at."""
        if self._ended:
            return True
        if not self._server.running:
            return False
        store = self._server.store
        return missed or self._asked or any(store.changes_after(one, seen) for one in self._collections)

    def _end(self) -> None:
        with self._server.store.changed:
            self._ended = True
            self._server.store.changed.notify_all()
