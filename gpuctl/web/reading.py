"""Reads the cluster when somebody asks and the last reading is old; who asks meanwhile shares the reading."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Generic, TypeVar

from driver.errors import ApiError
from driver.kube.client import KubeClient
from driver.kube.errors import Forbidden
from driver.process.log import get_logger
from gpuctl.cli.cluster import DRA, ClusterView
from gpuctl.cli.failures import error_text
from gpuctl.explain.answer import explain_pod
from gpuctl.explain.findings import Explanation
from gpuctl.explain.room import Rooms, read_occupants
from gpuctl.explain.snapshot import events_of, pod_of, take_snapshot, template_of
from gpuctl.fleet.cluster import Fleet
from gpuctl.fleet.seen import Seen
from gpuctl.web.classes import ClassDevices
from gpuctl.web.view import View, view_of
from kubernetes_rules.errors import RuleError
from kubernetes_rules.extended_resources import asked_resources

Object = dict[str, Any]
Value = TypeVar("Value")

AGE_FACTOR = 10
"""A value is read again when it is so many times as old as the reading took: at most a tenth of a core."""

LEAST_AGE_SECONDS = 2.0
MOST_ANSWERS = 256
"""The pods whose explanations are kept."""

_SHARED = (f"{DRA}/resourceslices", f"{DRA}/resourceclaims", f"{DRA}/deviceclasses", "/api/v1/nodes")

_log = get_logger(__name__)


class Kept(Generic[Value]):
    """A value that is read when somebody asks for it, in a thread of its own, and kept for a while.

    For the event loop's thread alone. ``failure`` says why the last reading failed, and is empty if it did
    not; then ``value`` is that of the reading before.
    """

    def __init__(
        self, read: Callable[[], Value], turn: asyncio.Lock, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Readings that have the same ``turn`` come one after the other."""
        self._read = read
        self._turn = turn
        self._clock = clock
        self._due: float | None = None
        self._renewing: asyncio.Task[None] | None = None
        self.value: Value | None = None
        self.failure = ""

    @property
    def is_first(self) -> bool:
        """Whether the first reading has not ended."""
        return self._due is None

    def ask(self) -> asyncio.Task[None] | None:
        """Begin to read if it is time, and wait for nothing; returns the reading that goes on."""
        if self._renewing is None and (self._due is None or self._clock() >= self._due):
            self._renewing = asyncio.get_running_loop().create_task(self._renew())
        return self._renewing

    async def latest(self, patience_seconds: float) -> Value | None:
        """The value, as new as it has to be; the old one if the reading takes longer than the patience."""
        renewing = self.ask()
        if renewing is not None:
            await asyncio.wait({renewing}, timeout=patience_seconds)
        return self.value

    async def _renew(self) -> None:
        async with self._turn:
            began = self._clock()
            try:
                self.value, self.failure = await asyncio.wrap_future(_in_thread(self._read)), ""
            except (ApiError, RuleError) as error:
                self.failure = error_text(error)
            except Exception as error:  # noqa: BLE001 - nobody else would notice: the page has to say so
                _log.error("the cluster cannot be shown", exc_info=error)
                self.failure = f"the server of this page has failed ({type(error).__name__}: {error})"
            ended = self._clock()
        took = 0.0 if self.failure else ended - began
        self._due = ended + max(LEAST_AGE_SECONDS, AGE_FACTOR * took)
        self._renewing = None


def _in_thread(read: Callable[[], Value]) -> Future[Value]:
    """Run it in a thread that does not keep the process from ending: an API server may hang."""
    future: Future[Value] = Future()

    def run() -> None:
        try:
            future.set_result(read())
        except BaseException as error:  # noqa: BLE001 - who waits for the future gets it
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


class Lists(ClusterView):
    """Reads each list of nodes and devices once, so that a reading and its explanations are of one moment."""

    def __init__(self, client: KubeClient) -> None:
        super().__init__(client)
        self._kept: dict[str, list[Object]] = {}

    def listed(self, path: str, **params: str) -> list[Object]:
        """As of ClusterView."""
        if path not in _SHARED:
            return super().listed(path, **params)
        if path not in self._kept:
            self._kept[path] = super().listed(path, **params)
        return self._kept[path]


@dataclass(frozen=True, slots=True)
class Reading:
    """The cluster at one moment, and its lists for explanations."""

    view: View
    lists: Lists


class Readings:
    """What the page shows: the cluster, and explanations of pods. For the event loop's thread alone."""

    def __init__(self, client: KubeClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._fleet, self._classes = Fleet(), ClassDevices()
        self._turn = asyncio.Lock()
        self.cluster = Kept(self._read, asyncio.Lock(), clock)
        self._answers: OrderedDict[tuple[str, str], Kept[Explanation | None]] = OrderedDict()

    def answer(self, namespace: str, name: str) -> Kept[Explanation | None]:
        """Explain's answer about a pod; its value is None if there is no such pod."""
        key = (namespace, name)
        if key not in self._answers:
            self._answers[key] = Kept(lambda: self._explain(namespace, name), self._turn, self._clock)
            if len(self._answers) > MOST_ANSWERS:
                self._answers.popitem(last=False)
        self._answers.move_to_end(key)
        return self._answers[key]

    def _read(self) -> Reading:
        at = self._client.server_time().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        lists = Lists(self._client)
        seen = Seen.read(lists)
        classes = lists.classes()
        unread, nodes = list(seen.unread), []
        try:
            nodes = lists.nodes()
        except Forbidden:
            unread.append("nodes")
        return Reading(view_of(at, seen, nodes, classes, unread, self._fleet, self._classes), lists)

    def _explain(self, namespace: str, name: str) -> Explanation | None:
        reading = self.cluster.value
        return explained(reading.lists if reading else Lists(self._client), namespace, name)


def explained(view: ClusterView, namespace: str, name: str) -> Explanation | None:
    """What ``gpuctl explain`` says of a pod; None if there is no such pod. Raises ApiError and RuleError."""
    pod = pod_of(view, namespace, name)
    if pod is None:
        return None
    snapshot = take_snapshot(view, namespace, asked_resources(pod))
    templates = {one: template_of(view, namespace, one) for one in _templates(pod)}
    events = events_of(view, namespace, pod["metadata"]["uid"])
    told = explain_pod(pod, snapshot, templates, events)
    return Rooms(snapshot, lambda: read_occupants(view)).added_to(told, pod, templates, events)


def _templates(pod: Object) -> Sequence[str]:
    entries = pod["spec"].get("resourceClaims") or ()
    return sorted(
        {entry["resourceClaimTemplateName"] for entry in entries if entry.get("resourceClaimTemplateName")}
    )
