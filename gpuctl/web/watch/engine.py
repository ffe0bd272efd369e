"""Keeps the view up to date: gathers what the watches tell, and computes at most twice a second.

All browsers look at the same view, so that it is computed once, however many there are. After each pass the
engine rests nine times as long as the pass took, so that it never takes more than a tenth of a core.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from driver.process.log import get_logger
from gpuctl.web.seen.view import View
from gpuctl.web.watch.sources import Sources
from gpuctl.web.watch.state import ClusterState, Kind

if TYPE_CHECKING:
    from driver.kube.client import KubeClient

Object = dict[str, Any]

_log = get_logger(__name__)

LEAST_PAUSE_SECONDS = 0.5
REST = 9.0
"""So many times as long as a pass took the engine rests after it."""

UNREAD_PAUSE_SECONDS = 0.05
"""While the cluster is being read there is nothing to compute."""

FIRST_LOOK_SECONDS = 1.0
LOOK_SECONDS = 0.05
"""How long a pass may ask which classes select which devices; what is left waits for the next pass."""


class Engine:
    """The watches and the thread that makes views of what they tell, from ``start`` to ``stop``."""

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
        """Have each new view told, in the engine's thread; before ``start``."""
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
        look_seconds, rest = FIRST_LOOK_SECONDS, 0.0
        while not self._stop.is_set():
            self._wake.wait()
            self._wake.clear()
            started = self._clock()
            self._take()
            synced = self._sources.synced
            if not synced and not self._sources.failing:
                self._stop.wait(UNREAD_PAUSE_SECONDS)
                continue
            self._pass(synced, look_seconds)
            # The first pass computes everything, once.
            self._stop.wait(max(LEAST_PAUSE_SECONDS, rest * (self._clock() - started)))
            if synced:
                look_seconds, rest = LOOK_SECONDS, REST

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
