"""Lets one of several replicas work at a time, by a Lease of coordination.k8s.io/v1.

The rules are those of client-go's leader election (tools/leaderelection/leaderelection.go): whoever does not
have the Lease waits until it has not changed for its whole duration. Only the time since this process saw the
last change counts, by a clock that nobody sets. The times written in the Lease are for people, so replicas
may disagree about the time of day.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from urllib.parse import quote

from driver.errors import ApiError
from driver.kube.client import KubeClient, Object
from driver.kube.errors import AlreadyExists, Conflict, NotFound
from driver.kube.paths import object_path
from driver.process.log import get_logger

DURATION_SECONDS = 15
"""How long others wait for the holder to renew the Lease."""

RENEW_SECONDS = 10.0
"""How long the holder counts on a Lease that it renewed. It stops before others may start."""

TRY_SECONDS = 2.0
"""How often the holder renews the Lease, and others look at it."""

_log = get_logger(__name__)


class Lease:
    """The Lease and whether this process holds it. ``run`` tries to get and keep it until ``stop`` is set.

    ``changed`` is called in the thread of ``run`` when this process got or lost it.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        stop: threading.Event,
        changed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases"
        self._path = object_path(self._collection, name)
        self._name = name
        self._identity = identity
        self._stop = stop
        self._changed = changed
        self._clock = clock
        self._until = 0.0
        self._stored: Object | None = None
        self._seen: tuple[str, float] = "", 0.0
        """The resourceVersion of the Lease, and when this process first saw it."""

    def is_held(self) -> bool:
        """Whether this process holds the Lease now."""
        return self._clock() < self._until

    def run(self) -> None:
        """Get and keep the Lease until the process stops, then give it back."""
        had = False
        while not self._stop.is_set():
            try:
                self.try_once()
            except ApiError as error:
                _log.warning("cannot read or write the lease", error=str(error))
            if self.is_held() != had:
                had = not had
                _log.info("has the lease" if had else "does not have the lease any more", lease=self._name)
                self._changed()
            self._stop.wait(TRY_SECONDS)
        self._give_back()

    def try_once(self) -> None:
        """Renew the Lease, or take it if nobody holds it. Raises ApiError."""
        started = self._clock()
        try:
            stored = self._stored if self.is_held() and self._stored else self._read()
            if stored is None:
                body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
                mine = {**body, "metadata": {"name": self._name}, "spec": self._spec({})}
                self._stored = self._client.create(self._collection, mine)
            elif self._may_take(stored):
                mine = {**stored, "spec": self._spec(stored.get("spec") or {})}
                self._stored = self._client.replace(self._path, mine)
            else:
                return
        # Another replica was faster, or somebody has changed or deleted the Lease: read it next time.
        except (Conflict, AlreadyExists, NotFound):
            self._until, self._stored = 0.0, None
            return
        # From before the request, since others may have seen the change at any moment after that.
        self._until = started + RENEW_SECONDS

    def _read(self) -> Object | None:
        try:
            stored = self._client.get(self._path)
        except NotFound:
            return None
        version = str(stored["metadata"].get("resourceVersion"))
        if version != self._seen[0]:
            self._seen = version, self._clock()
        return stored

    def _may_take(self, stored: Object) -> bool:
        spec = stored.get("spec") or {}
        if spec.get("holderIdentity") in (None, "", self._identity):
            return True
        seconds = max(DURATION_SECONDS, int(spec.get("leaseDurationSeconds") or 0))
        return self._clock() >= self._seen[1] + seconds

    def _spec(self, before: Object) -> Object:
        now = self._client.server_time().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        is_new = before.get("holderIdentity") != self._identity
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": DURATION_SECONDS,
            "acquireTime": now if is_new else before.get("acquireTime", now),
            "renewTime": now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + bool(is_new and before),
        }

    def _give_back(self) -> None:
        """Let another replica start at once."""
        if not self.is_held() or self._stored is None:
            return
        self._until = 0.0
        kept = {key: value for key, value in self._stored["spec"].items() if key != "holderIdentity"}
        try:
            self._client.replace(self._path, {**self._stored, "spec": kept})
        except ApiError as error:
            _log.info("cannot give the lease back, so others wait until it expires", error=str(error))
