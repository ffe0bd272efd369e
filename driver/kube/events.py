"""Posts core/v1 Events about objects in a thread of its own, so that no caller waits or fails for one."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from driver.errors import ApiError
from driver.event_reasons import EventReason
from driver.kube.backoff import retry_until
from driver.kube.client import KubeClient
from driver.kube.errors import NotFound
from driver.kube.paths import events_path, object_path
from driver.process.log import get_logger

_log = get_logger(__name__)

# The longest message of an Event (events.k8s.io/v1), and the longest name of any object.
_MAX_MESSAGE_BYTES = 1024
_MAX_NAME_CHARACTERS = 253
_QUEUED = 256
_REMEMBERED = 512
_SAME_SECONDS = 600.0
"""An event that is repeated within this time raises the count of the first and is not written again."""

_BURST = 25
"""This many events of one object are posted at once, as by client-go's filter; later ones at intervals."""

_BURST_OF_NAMESPACE = 250
"""The same for all objects of a namespace. A fault of the whole node is posted on each claim on the node, and
on its pods. No namespace can use up the events of others."""

_SECONDS_PER_EVENT = 2.0
_GIVE_UP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Reference:
    """The object that an event is about; ``namespace`` is empty for a cluster-scoped object."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class _Event:
    about: Reference
    reason: EventReason
    message: str


@dataclass(slots=True)
class _Allowance:
    """A token bucket: it fills with time up to the burst, and each event takes one token."""

    burst: int
    level: float
    at: float

    @classmethod
    def full(cls, burst: int) -> _Allowance:
        """A full bucket."""
        return cls(burst, float(burst), time.monotonic())

    def allows(self) -> bool:
        """Whether an event may be posted now."""
        now = time.monotonic()
        self.level, self.at = min(self.burst, self.level + (now - self.at) / _SECONDS_PER_EVENT), now
        return self.level >= 1


@dataclass(slots=True)
class _Posted:
    path: str
    count: int
    posted_at: float


class EventRecorder:
    """Takes events from any thread and posts them in the thread that calls ``run``.

    The same event within ten minutes raises the count of the first. One object may have a burst of 25 events,
    one namespace a burst of 250, and then one every two seconds. More are dropped, which is logged. An event
    that cannot be posted is logged.
    """

    def __init__(self, client: KubeClient, component: str, node: str) -> None:
        self._client = client
        self._component = component
        self._node = node
        self._queue: queue.Queue[_Event | None] = queue.Queue(_QUEUED)
        self._stop = threading.Event()
        self._posted: OrderedDict[_Event, _Posted] = OrderedDict()
        self._allowances: OrderedDict[Reference | str, _Allowance] = OrderedDict()

    def post(self, about: Reference, reason: EventReason, message: str) -> None:
        """Queue an event; returns at once and never raises. ``message`` is cut to 1024 bytes."""
        event = _Event(about, reason, _cut(message))
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            _log.warning("event dropped, since too many are waiting", reason=reason.word, about=about.name)

    def run(self) -> None:
        """Post until ``stop`` is called. Events that wait then are tried once."""
        # A full queue does not take the None that ends it, so the flag counts as well.
        while not (self._stop.is_set() and self._queue.empty()):
            event = self._queue.get()
            if event is None:
                return
            try:
                self._post(event)
            except ApiError as error:
                _log.warning(
                    "cannot post an event",
                    reason=event.reason.word,
                    about=event.about.name,
                    message=event.message,
                    error=str(error),
                )

    def stop(self) -> None:
        """Make ``run`` return once the events that wait are posted."""
        self._stop.set()
        try:
            self._queue.put(None, timeout=1.0)
        except queue.Full:
            _log.warning("events dropped at the end, since too many are waiting")

    def _post(self, event: _Event) -> None:
        known = self._posted.get(event)
        if known is not None and time.monotonic() - known.posted_at < _SAME_SECONDS:
            if self._allowed(event.about):
                self._count_up(event, known)
            else:
                known.count += 1
            return
        if not self._allowed(event.about):
            _log.warning(
                "event dropped, since too many were posted", reason=event.reason.word, about=event.about.name
            )
            return
        self._create(event)

    def _allowed(self, about: Reference) -> bool:
        """Take a token from the buckets of the object and of its namespace, if both have one."""
        both = self._allowance(about, _BURST), self._allowance(about.namespace, _BURST_OF_NAMESPACE)
        if not all(one.allows() for one in both):
            return False
        for one in both:
            one.level -= 1
        return True

    def _allowance(self, of: Reference | str, burst: int) -> _Allowance:
        # Put it at the end, so that the one that is dropped below is the one used least recently.
        found = self._allowances.pop(of, None) or _Allowance.full(burst)
        self._allowances[of] = found
        if len(self._allowances) > _REMEMBERED:
            self._allowances.popitem(last=False)
        return found

    def _create(self, event: _Event) -> None:
        # Events about cluster-scoped objects, such as Nodes, are in the namespace default, by convention.
        collection = events_path(event.about.namespace or "default")
        body = self._body(event)
        self._retried(lambda: self._client.create(collection, body))
        path = object_path(collection, body["metadata"]["name"])
        self._posted[event] = _Posted(path, 1, time.monotonic())
        self._posted.move_to_end(event)
        if len(self._posted) > _REMEMBERED:
            self._posted.popitem(last=False)

    def _count_up(self, event: _Event, known: _Posted) -> None:
        known.count += 1
        patch = {"count": known.count, "lastTimestamp": self._now()}
        try:
            self._retried(lambda: self._client.patch(known.path, patch, "application/merge-patch+json"))
        # The API server deletes events after an hour by default, or somebody has.
        except NotFound:
            self._create(event)

    def _retried(self, call: Any) -> None:
        retry_until(call, deadline=time.monotonic() + _GIVE_UP_SECONDS, stop=self._stop)

    def _now(self) -> str:
        """The server's time, so that events of all nodes are in the right order."""
        return self._client.server_time().strftime("%Y-%m-%dT%H:%M:%SZ")

    def _body(self, event: _Event) -> dict[str, Any]:
        about, now = event.about, self._now()
        suffix = f".{secrets.token_hex(8)}"
        # The name has to be a DNS subdomain and unique. client-go appends the time in hexadecimal, this is
        # random.
        name = about.name.lower()[: _MAX_NAME_CHARACTERS - len(suffix)].rstrip("-.") + suffix
        involved = {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "name": about.name,
            "namespace": about.namespace,
            "uid": about.uid,
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": about.namespace or "default"},
            "involvedObject": {key: value for key, value in involved.items() if value},
            "type": event.reason.severity,
            "reason": event.reason.word,
            "message": event.message,
            "source": {"component": self._component, "host": self._node},
            "reportingComponent": self._component,
            "reportingInstance": self._node,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }


def _cut(message: str) -> str:
    """The message in at most 1024 bytes of UTF-8, with an ellipsis if it was cut."""
    data = message.encode()
    if len(data) <= _MAX_MESSAGE_BYTES:
        return message
    # The ellipsis has three bytes. A character that is cut in the middle is dropped.
    return data[: _MAX_MESSAGE_BYTES - 3].decode(errors="ignore") + "…"
