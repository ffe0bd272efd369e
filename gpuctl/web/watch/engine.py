"""Keeps the view up to date: gathers what the watches report, and computes the view at most twice a second.

All browsers see the same view, so it is computed once, however many there are.
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
from gpuctl.cli.failures import error_text
from gpuctl.fleet.pods import asks_devices
from gpuctl.fleet.seen import OF_DRIVER
from gpuctl.web.seen.view import NOT_UP_TO_DATE, View
from gpuctl.web.watch.state import ClusterState, Kind

Object = dict[str, Any]

_log = get_logger(__name__)

_LEAST_PAUSE_SECONDS = 0.5
REST = 9.0
"""The engine rests so many times as long as a pass took: it uses at most a tenth of a core."""

_UNREAD_PAUSE_SECONDS = 0.05
"""The pause while the first lists are read, when there is nothing to compute."""

_FIRST_SELECTING_SECONDS = 1.0
_SELECTING_SECONDS = 0.05
"""How long a pass may evaluate the selectors of classes; the rest waits for the next pass."""

OnChange = Callable[[Kind, Object, bool, bool], None]
"""Called with the kind, the object, whether it is gone, and whether that is news."""


class Engine:
    """The watches and the thread that makes views of what they report, from ``start`` to ``stop``."""

    def __init__(self, client: KubeClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        # The threads of the watches put into it, and the engine's thread takes out.
        self._changes: queue.SimpleQueue[tuple[datetime, Kind, Object, bool, bool]] = queue.SimpleQueue()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._sources = Sources(client, self._changed, self._wake.set)
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
        """The error that ended the engine, None while it runs."""
        return self._failure

    def listen(self, listener: Callable[[View], None]) -> None:
        """Call ``listener`` with each new view, in the engine's thread; to be called before ``start``."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Start to watch and to compute."""
        self._sources.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop both, and wait until they have ended."""
        self._stop.set()
        self._wake.set()
        self._sources.stop()
        self._thread.join()

    def _changed(self, kind: Kind, item: Object, gone: bool, news: bool) -> None:
        self._changes.put((self._client.server_time(), kind, item, gone, news))
        self._wake.set()

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - nobody would notice that the thread ended: the page says so
            _log.error("the page is no longer updated", exc_info=error)
            self._failure = error
            words = f"{NOT_UP_TO_DATE}: the server has failed ({type(error).__name__}: {error}); restart it"
            self._tell(replace(self._view, version=self._view.version + 1, failing=(words,)))

    def _run(self) -> None:
        selecting_seconds, rest = _FIRST_SELECTING_SECONDS, 0.0
        while not self._stop.is_set():
            self._wake.wait()
            self._wake.clear()  # before the changes are taken, so that none is missed
            started = self._clock()
            self._take_changes()
            # While the first lists are read, the view would show a part of the cluster as if it were all. But
            # if a list fails, the page has to say so.
            synced = self._sources.synced
            if not synced and not self._sources.failing:
                self._stop.wait(_UNREAD_PAUSE_SECONDS)
                continue
            self._compute(synced, selecting_seconds)
            # The first pass computes everything; a person waits for it, so there is no long rest after it.
            self._stop.wait(max(_LEAST_PAUSE_SECONDS, rest * (self._clock() - started)))
            if synced:
                selecting_seconds, rest = _SELECTING_SECONDS, REST

    def _take_changes(self) -> None:
        while not self._changes.empty():
            at, kind, item, gone, news = self._changes.get()
            self._state.update(kind, item, at, gone=gone, news=news)

    def _compute(self, synced: bool, selecting_seconds: float) -> None:
        until = self._clock() + selecting_seconds
        view = self._state.refresh(
            self._client.server_time(),
            synced=synced,
            failing=self._sources.failing,
            has_time=lambda: self._clock() < until,
        )
        if self._state.has_more:
            self._wake.set()  # the next pass goes on with the selectors
        if view is not self._view:
            self._tell(view)

    def _tell(self, view: View) -> None:
        self._view = view
        for listener in self._listeners:
            listener(view)


@dataclass(frozen=True, slots=True)
class Source:
    """A collection to watch; objects for which ``concerns`` is false are ignored."""

    kind: Kind
    what: str
    path: str
    fields: Mapping[str, str]
    concerns: Callable[[Object], bool] = lambda _item: True
    labels: str = ""


def _of_event(component: str) -> Source:
    return Source("event", f"events of {component}", "/api/v1/events", {"reportingComponent": component})


# Of pods only those that wait, and of events only those of this driver: a cluster has many others.
_SOURCES = (
    Source("slice", "ResourceSlices", f"{DRA}/resourceslices", {}),
    Source("class", "DeviceClasses", f"{DRA}/deviceclasses", {}),
    Source("claim", "ResourceClaims", f"{DRA}/resourceclaims", {}),
    Source("node", "nodes", "/api/v1/nodes", {}),
    # status.phase is one of the few fields of pods that the API server can select by.
    Source("pod", "pods that wait", "/api/v1/pods", {"status.phase": "Pending"}, asks_devices),
    Source("driver", "pods of the driver", "/api/v1/pods", {}, labels=OF_DRIVER),
    _of_event("gpu-dra-controller"),
    _of_event("gpu-dra-kubeletplugin"),
)


class Sources:
    """All watches, each in a thread of its own from ``start`` to ``stop``."""

    def __init__(self, client: KubeClient, on_change: OnChange, on_status: Callable[[], None]) -> None:
        """The watches call ``on_change``, and ``on_status`` if ``synced`` or ``failing`` may have changed."""
        self._client = client
        self._on_change = on_change
        self._on_status = on_status
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._failing: dict[str, tuple[str, str]] = {}
        self._refused: set[str] = set()
        self._reflectors = [self._reflector(source) for source in _SOURCES]
        self._threads = [
            threading.Thread(target=one.run, name=f"watch {source.what}", daemon=True)
            for source, one in zip(_SOURCES, self._reflectors, strict=True)
        ]

    def _reflector(self, source: Source) -> Reflector:
        def changed(event: str, item: Object) -> None:
            # Objects of the first list were there before: they are not news.
            self._on_change(source.kind, item, event == "DELETED", reflector.synced.is_set())
            self._note(source, None)

        def listed(_count: int) -> None:
            self._note(source, None)
            self._on_status()

        def failed(error: ApiError, _wait_seconds: float) -> None:
            # Refused for want of rights: the page shows the rest. The reflector goes on trying, since rights
            # may come.
            refused = isinstance(error, Forbidden)
            if refused:
                self._refused.add(source.what)
            words = "Not shown, because this user may not read them" if refused else NOT_UP_TO_DATE
            self._note(source, (words, error_text(error)))
            self._on_status()

        reflector = Reflector(
            self._client,
            Selection(source.path, source.fields, {}, labels=source.labels),
            self._stop,
            on_event=changed,
            on_list=listed,
            on_failure=failed,
            concerns=source.concerns,
        )
        return reflector

    def _note(self, source: Source, failure: tuple[str, str] | None) -> None:
        with self._lock:
            if failure is None:
                self._failing.pop(source.what, None)
            else:
                self._failing[source.what] = failure

    @property
    def synced(self) -> bool:
        """Whether everything that this user may read has been read at least once."""
        return all(
            one.synced.is_set() or source.what in self._refused
            for source, one in zip(_SOURCES, self._reflectors, strict=True)
        )

    @property
    def failing(self) -> tuple[str, ...]:
        """What cannot be watched now, and why; a line for each cause."""
        by_cause: dict[tuple[str, str], list[str]] = {}
        with self._lock:
            for what, cause in sorted(self._failing.items()):
                by_cause.setdefault(cause, []).append(what)
        return tuple(
            f"{words}: {', '.join(names) if len(names) < len(_SOURCES) else 'everything'}: {why}"
            for (words, why), names in by_cause.items()
        )

    def start(self) -> None:
        """Start to watch."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop all watches, and wait until they have ended."""
        self._stop.set()
        self._client.close()
        for one in self._reflectors:
            one.wake()  # one that waits after a failure has no connection that could be closed
        for thread in self._threads:
            thread.join()
