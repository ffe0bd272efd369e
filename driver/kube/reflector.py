"""Keeps a local copy of a collection of the Kubernetes API true: list, watch, and begin again when it must.

Rules: after a 410 it lists again; any other end of a watch resumes from the last resourceVersion, which
bookmarks keep fresh. Every failure, and every watch that ends young, whatever it said, waits with
exponential back-off, at least as long as the server asks for. Nothing here spins.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from driver.errors import ApiError
from driver.kube.backoff import Backoff
from driver.kube.client import KubeClient
from driver.kube.errors import BadRequest, Gone, Silent
from driver.kube.watch import WatchStream

Object = dict[str, Any]
EventType = Literal["ADDED", "MODIFIED", "DELETED"]

_PAGE_SIZE = 500
_WATCH_SECONDS = 300
_IDLE_SECONDS = 120.0
"""How long a watch may stay silent: API servers send a bookmark each minute (defaultBookmarkFrequency).

The other end of a silent one may be gone without a word, and keep-alive probes a proxy in between at most.
"""
_MOST_BACKOFF_SECONDS = 10.0
_GROWN_SECONDS = _MOST_BACKOFF_SECONDS
"""A watch that lived as long as the longest wait is followed by the next one at once."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects: the path of a collection and what their fields have to be.

    ``fields`` maps dotted paths to values, ``{"spec.nodeName": "a"}``, and the server selects by them.
    ``newer_fields`` likewise, but where an older server answers 400 they are looked at on this side
    only (a ResourceSlice has ``spec.pool.name`` from Kubernetes 1.37 on).
    """

    path: str
    fields: Mapping[str, str]
    newer_fields: Mapping[str, str]


class Reflector:
    """A local copy of the selected objects, by namespace and name.

    ``run`` does the work in the caller's thread until ``stop`` is set and ``wake`` was called; ``on_event``
    is called there after each change of the copy, ``on_list`` with the number of objects after each list,
    ``on_failure`` with each error and the seconds until the next try. ``synced`` is set after the first
    complete list. Objects for which ``concerns`` is false are left out. The objects are shared: callers must
    not change them. Reading is thread-safe.
    """

    def __init__(
        self,
        client: KubeClient,
        selection: Selection,
        stop: threading.Event,
        *,
        on_event: Callable[[EventType, Object], None] = lambda _type, _item: None,
        on_list: Callable[[int], None] = lambda _objects: None,
        on_failure: Callable[[ApiError, float], None] = lambda _error, _wait_seconds: None,
        backoff: Backoff | None = None,
        concerns: Callable[[Object], bool] = lambda _item: True,
        clock: Callable[[], float] = time.monotonic,
        idle_seconds: float = _IDLE_SECONDS,
    ) -> None:
        self._clock = clock
        self._idle_seconds = idle_seconds
        self._client = client
        self._selection = selection
        self._stop = stop
        self._on_event = on_event
        self._on_list = on_list
        self._on_failure = on_failure
        self._concerns = concerns
        self._backoff = backoff or Backoff(0.2, _MOST_BACKOFF_SECONDS)
        self._asked_fields = {**selection.fields, **selection.newer_fields}
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str], Object] = {}
        self._seen = ""
        self._stream: WatchStream | None = None
        self.synced = threading.Event()

    def snapshot(self) -> tuple[list[Object], str]:
        """The objects, and the resourceVersion up to which every change of them has been seen."""
        with self._lock:
            return list(self._objects.values()), self._seen

    def wake(self) -> None:
        """End the running watch at once; with ``stop`` set, ``run`` returns."""
        with self._lock:
            stream = self._stream
        if stream is not None:
            stream.close()

    def run(self) -> None:
        """List and watch until stopped."""
        while not self._stop.is_set():
            error: ApiError | None = None
            try:
                if not self._seen:
                    self._list()
                if self._watch():
                    continue
            except Gone as gone:
                self._seen, error = "", gone
            except BadRequest as refused:
                self._ask_less()
                error = refused
            except ApiError as failure:
                error = failure
            wait_seconds = self._backoff.next_seconds(error)
            if error is not None and not self._stop.is_set():
                self._on_failure(error, wait_seconds)
            self._stop.wait(wait_seconds)

    def _ask_less(self) -> None:
        """Leave the newer fields out of the selector; ``_selects`` still checks them."""
        self._asked_fields = dict(self._selection.fields)

    def _params(self) -> dict[str, str]:
        fields = ",".join(f"{path}={value}" for path, value in sorted(self._asked_fields.items()))
        return {"fieldSelector": fields} if fields else {}

    def _selects(self, item: Object) -> bool:
        wanted = self._selection.newer_fields
        return self._concerns(item) and all(_field(item, path) == value for path, value in wanted.items())

    def _list(self) -> None:
        """Read all pages and take over what they hold; a page that is too old raises Gone."""
        found: dict[tuple[str, str], Object] = {}
        params = {**self._params(), "limit": str(_PAGE_SIZE)}
        while True:
            answer = self._client.get(self._selection.path, params)
            group_version = answer.get("apiVersion")
            kind = str(answer.get("kind", "")).removesuffix("List")
            for item in answer.get("items") or []:
                item.setdefault("apiVersion", group_version)
                item.setdefault("kind", kind)
                if self._selects(item):
                    found[_key(item)] = item
            metadata = answer.get("metadata") or {}
            if not metadata.get("continue"):
                break
            params["continue"] = metadata["continue"]
        self._replace(found, str(metadata.get("resourceVersion", "")))
        self.synced.set()
        self._on_list(len(found))

    def _replace(self, found: dict[tuple[str, str], Object], version: str) -> None:
        """Make the copy what a list says, and tell the differences."""
        with self._lock:
            before, self._objects, self._seen = self._objects, found, version
        for key, old in before.items():
            if key not in found or _uid(found[key]) != _uid(old):
                self._on_event("DELETED", old)
        for key, item in found.items():
            known = before.get(key)
            if known is None or _uid(known) != _uid(item):
                self._on_event("ADDED", item)
            elif _version(known) != _version(item):
                self._on_event("MODIFIED", item)

    def _watch(self) -> bool:
        """Follow the changes until the watch ends; whether the next one may begin at once.

        One that lived for a while ends the slowness after failures, however it ends.
        """
        seconds = _WATCH_SECONDS + random.randrange(_WATCH_SECONDS)  # noqa: S311 # spreads load, no secret
        params = {
            **self._params(),
            "resourceVersion": self._seen,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        started, grown = self._clock(), False
        stream = self._client.watch(self._selection.path, params, idle_seconds=self._idle_seconds)
        with self._lock:
            self._stream = stream
        if self._stop.is_set():
            stream.close()
        try:
            for kind, item in stream:
                self._take(kind, item)
        except Silent:
            pass  # it lived for as long as one may be silent
        finally:
            with self._lock:
                self._stream = None
            grown = self._clock() - started >= _GROWN_SECONDS
            if grown:
                self._backoff.reset()
        return grown

    def _take(self, kind: str, item: Object) -> None:
        """Apply one event of the watch to the copy, and tell it."""
        key = _key(item)
        with self._lock:
            self._seen = _version(item)
            if kind == "BOOKMARK":
                return
            known = key in self._objects
            gone = kind == "DELETED" or not self._selects(item)
            if gone:
                self._objects.pop(key, None)
            else:
                self._objects[key] = item
        if gone and known:
            self._on_event("DELETED", item)
        elif not gone:
            self._on_event("MODIFIED" if known else "ADDED", item)


def _key(item: Object) -> tuple[str, str]:
    metadata = item["metadata"]
    return str(metadata.get("namespace", "")), str(metadata.get("name", ""))


def _uid(item: Object) -> str:
    return str(item["metadata"].get("uid", ""))


def _version(item: Object) -> str:
    return str(item["metadata"].get("resourceVersion", ""))


def _field(item: Object, path: str) -> str:
    """The value at a dotted path as the server's selectors see it: a string, empty when absent."""
    value: Any = item
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
