"""Keeps the view up to date: gathers what the watches report, and computes at most twice a second.

All browsers look at the same view, so that it is computed once, however many there are. After each pass the
engine rests nine times as long as the pass took, so that it never takes more than a tenth of a core.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from driver.errors import ApiError
from driver.kube.client import KubeClient
from driver.kube.errors import Forbidden
from driver.kube.reflector import Reflector, Selection
from driver.process.log import get_logger
from gpuctl.cli.cluster import DRA
from gpuctl.cli.failures import told
from gpuctl.fleet.pods import asks_devices
from gpuctl.web.seen.view import View
from gpuctl.web.watch.state import ClusterState, Kind

Object = dict[str, Any]

_log = get_logger(__name__)

_LEAST_PAUSE_SECONDS = 0.5
REST = 9.0
"""So many times as long as a pass took the engine rests after it."""

_UNREAD_PAUSE_SECONDS = 0.05
"""While the cluster is being read there is nothing to compute."""

_FIRST_LOOK_SECONDS = 1.0
_LOOK_SECONDS = 0.05
"""How long a pass may ask which classes select which devices; what is left waits for the next pass."""

Hear = Callable[[Kind, Object, bool, bool], None]
"""Called with the kind, the object, whether it is gone, and whether that is news."""


class Engine:
    """The watches and the thread that makes views of what they report, from ``start`` to ``stop``."""

    def __init__(self, client: KubeClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._heard: queue.SimpleQueue[tuple[datetime, Kind, Object, bool, bool]] = queue.SimpleQueue()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._sources = Sources(client, self._hear, self._wake.set)
        self._state = ClusterState()
        self._view = View()
        self._listeners: list[Callable[[View], None]] = []
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._guarded, name="engine", daemon=True)

    @property
    def view(self) -> View:
        """The latest view."""
        return self._view

    @property
    def failure(self) -> Exception | None:
        """What ended the engine against its will, None while it runs."""
        return self._failure

    def listen(self, listener: Callable[[View], None]) -> None:
        """Call ``hear`` with each new view, in the engine's thread; to be set before ``start``."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Begin to watch and to compute."""
        self._sources.start()
        self._thread.start()

    def stop(self) -> None:
        """End both, and wait until they have."""
        self._stop.set()
        self._wake.set()
        self._sources.stop()
        self._thread.join()

    def _hear(self, kind: Kind, item: Object, gone: bool, told: bool) -> None:
        self._heard.put((self._client.server_time(), kind, item, gone, told))
        self._wake.set()

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - a thread's end would go unseen: the page tells of it
            _log.error("the page is computed no more", exc_info=error)
            self._failure = error
            words = f"Not up to date: the server has failed ({type(error).__name__}: {error}); start it anew"
            self._tell(replace(self._view, version=self._view.version + 1, failing=(words,)))

    def _run(self) -> None:
        look_seconds, rest = _FIRST_LOOK_SECONDS, 0.0
        while not self._stop.is_set():
            self._wake.wait()
            self._wake.clear()
            started = self._clock()
            self._take()
            synced = self._sources.synced
            if not synced and not self._sources.failing:
                self._stop.wait(_UNREAD_PAUSE_SECONDS)
                continue
            self._pass(synced, look_seconds)
            # The first pass computes everything, once.
            self._stop.wait(max(_LEAST_PAUSE_SECONDS, rest * (self._clock() - started)))
            if synced:
                look_seconds, rest = _LOOK_SECONDS, REST

    def _take(self) -> None:
        while not self._heard.empty():
            heard_at, kind, item, gone, told = self._heard.get()
            self._state.take(kind, item, heard_at, gone=gone, told=told)

    def _pass(self, synced: bool, look_seconds: float) -> None:
        until = self._clock() + look_seconds
        view = self._state.refresh(
            self._client.server_time(),
            synced=synced,
            failing=self._sources.failing,
            has_time=lambda: self._clock() < until,
        )
        if self._state.has_more:
            self._wake.set()
        if view is not self._view:
            self._tell(view)

    def _tell(self, view: View) -> None:
        self._view = view
        for listener in self._listeners:
            listener(view)


@dataclass(frozen=True, slots=True)
class Source:
    """A collection to watch. What ``concerns`` says no to is as if it were not there."""

    kind: Kind
    what: str
    path: str
    fields: Mapping[str, str]
    concerns: Callable[[Object], bool] = lambda _item: True


def _of_event(component: str) -> Source:
    return Source("event", f"events of {component}", "/api/v1/events", {"reportingComponent": component})


_SOURCES = (
    Source("slice", "ResourceSlices", f"{DRA}/resourceslices", {}),
    Source("class", "DeviceClasses", f"{DRA}/deviceclasses", {}),
    Source("claim", "ResourceClaims", f"{DRA}/resourceclaims", {}),
    Source("node", "nodes", "/api/v1/nodes", {}),
    Source("pod", "pods that wait", "/api/v1/pods", {"status.phase": "Pending"}, asks_devices),
    _of_event("gpu-dra-controller"),
    _of_event("gpu-dra-kubeletplugin"),
)
"""Of pods only those that wait, of events only those of this driver: a cluster has many others."""


class Sources:
    """All watches, each in a thread of its own from ``start`` to ``stop``."""

    def __init__(self, client: KubeClient, hear: Hear, changed: Callable[[], None]) -> None:
        """``hear`` is called by the watches, ``changed`` when ``synced`` or ``failing`` may be another."""
        self._client = client
        self._hear = hear
        self._changed = changed
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._failing: dict[str, str] = {}
        self._refused: set[str] = set()
        self._reflectors = [self._reflector(source) for source in _SOURCES]
        self._threads = [
            threading.Thread(target=one.run, name=f"watch {source.what}", daemon=True)
            for source, one in zip(_SOURCES, self._reflectors, strict=True)
        ]

    def _reflector(self, source: Source) -> Reflector:
        def hear(event: str, item: Object) -> None:
            self._hear(source.kind, item, event == "DELETED", reflector.synced.is_set())
            self._note(source, None)

        def listed(_count: int) -> None:
            self._note(source, None)
            self._changed()

        def failed(error: ApiError, _wait_seconds: float) -> None:
            refused = isinstance(error, Forbidden)
            if refused:
                self._refused.add(source.what)
            words = "Not shown, for want of rights" if refused else "Not up to date"
            self._note(source, f"{words}: {source.what}: {told(error)}")
            self._changed()

        reflector = Reflector(
            self._client,
            Selection(source.path, source.fields, {}),
            self._stop,
            on_event=hear,
            on_list=listed,
            on_failure=failed,
            concerns=source.concerns,
        )
        return reflector

    def _note(self, source: Source, failure: str | None) -> None:
        with self._lock:
            if failure is None:
                self._failing.pop(source.what, None)
            else:
                self._failing[source.what] = failure

    @property
    def synced(self) -> bool:
        """Whether all that this user may read was read at least once."""
        return all(
            one.synced.is_set() or source.what in self._refused
            for source, one in zip(_SOURCES, self._reflectors, strict=True)
        )

    @property
    def failing(self) -> tuple[str, ...]:
        """What cannot be watched now, and why."""
        with self._lock:
            return tuple(self._failing[name] for name in sorted(self._failing))

    def start(self) -> None:
        """Begin to watch."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End all watches, and wait until they have."""
        self._stop.set()
        self._client.close()
        for one in self._reflectors:
            one.wake()
        for thread in self._threads:
            thread.join()
