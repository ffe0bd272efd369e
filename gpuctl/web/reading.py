"""Reads the cluster when somebody asks and the last reading is old; who asks meanwhile shares the reading."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Generic, TypeVar

from driver.errors import ApiError
from driver.kube.client import KubeClient
from driver.process.log import get_logger
from gpuctl.cli.cluster import DRA, ClusterView
from gpuctl.cli.failures import error_text
from gpuctl.explain.answer import explain_pod
from gpuctl.explain.findings import Explanation
from gpuctl.explain.snapshot import object_path, take_snapshot
from gpuctl.fleet.cluster import Fleet
from gpuctl.fleet.seen import Seen
from gpuctl.web.classes import ClassDevices
from gpuctl.web.view import View, view_of
from kubernetes_rules.errors import RuleError

Object = dict[str, Any]
Pod = tuple[str, str]
"""The namespace and the name."""

Value = TypeVar("Value")

AGE_FACTOR = 10
"""A value is read again when it is so many times as old as the reading took: at most a tenth of a core."""

MOST_UNASKED = 20
"""The pods that are explained because the first page lists them: all together cost a tenth of a core."""

LEAST_AGE_SECONDS = 2.0
MOST_ANSWERS = 256
"""The pods whose explanations are kept."""

_SHARED = (f"{DRA}/resourceslices", f"{DRA}/resourceclaims", f"{DRA}/deviceclasses", "/api/v1/nodes")

_log = get_logger(__name__)


class Kept(Generic[Value]):
    """A value that is read when somebody asks for it, in a thread of its own, and kept for a while.

    For the event loop's thread alone. ``failure`` says why the last reading failed, and is empty if it did
    not; then ``value`` is that of the reading before. ``is_first``: no reading has ended yet.
    """

    def __init__(
        self, read: Callable[[], Value], turn: asyncio.Lock, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Readings that have the same ``turn`` come one after the other."""
        self._read = read
        self._turn = turn
        self._clock = clock
        self._took_seconds = self._ended = 0.0
        self._renewing: asyncio.Task[None] | None = None
        self.is_first = True
        self.value: Value | None = None
        self.failure = ""

    async def latest(self, patience_seconds: float | None, factor: int = 1) -> Value | None:
        """The value, as new as it has to be; the old one if the reading takes longer than the patience.

        It may be ``factor`` times as old as usual.
        """
        age_seconds = max(LEAST_AGE_SECONDS, factor * AGE_FACTOR * self._took_seconds)
        if self._renewing is None and (self.is_first or self._clock() - self._ended >= age_seconds):
            self._renewing = asyncio.get_running_loop().create_task(self._renew())
        if self._renewing is not None:
            await asyncio.wait({self._renewing}, timeout=patience_seconds)
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
            self._ended = self._clock()
        self._took_seconds = 0.0 if self.failure else self._ended - began
        self.is_first, self._renewing = False, None


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
        if params or path not in _SHARED:
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
        self._answers: OrderedDict[Pod, Kept[Explanation | None]] = OrderedDict()
        self._listed: asyncio.Task[None] | None = None

    def answer(self, pod: Pod) -> Kept[Explanation | None]:
        """Explain's answer about a pod; its value is None if there is no such pod."""
        if pod not in self._answers:
            self._answers[pod] = Kept(lambda: self._explain(*pod), self._turn, self._clock)
            if len(self._answers) > MOST_ANSWERS:
                self._answers.popitem(last=False)
        self._answers.move_to_end(pod)
        return self._answers[pod]

    def answers(self, pods: Iterable[Pod]) -> dict[Pod, Explanation]:
        """What is known about these pods; the rest is worked out, and a later look shows it."""
        listed = list(pods)[:MOST_UNASKED]
        if self._listed is None or self._listed.done():
            self._listed = asyncio.get_running_loop().create_task(self._explain_listed(listed))
        known = ((pod, self.answer(pod).value) for pod in listed)
        return {pod: told for pod, told in known if told is not None}

    async def _explain_listed(self, pods: Sequence[Pod]) -> None:
        # One by one, so that a pod whose page is opened meanwhile comes next.
        for pod in pods:
            await self.answer(pod).latest(None, MOST_UNASKED)

    def _read(self) -> Reading:
        at = self._client.server_time().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        lists = Lists(self._client)
        seen = Seen.read(lists)
        classes = lists.classes()
        nodes = [] if "nodes" in seen.unread else lists.nodes()
        return Reading(view_of(at, seen, nodes, classes, seen.unread, self._fleet, self._classes), lists)

    def _explain(self, namespace: str, name: str) -> Explanation | None:
        reading = self.cluster.value
        return explained(reading.lists if reading else Lists(self._client), namespace, name)


def explained(view: ClusterView, namespace: str, name: str) -> Explanation | None:
    """What ``gpuctl explain`` says of a pod; None if there is no such pod. Raises ApiError and RuleError."""
    pod = view.found(object_path("Pod", namespace, name))
    if pod is None:
        return None
    return explain_pod(pod, take_snapshot(view))
