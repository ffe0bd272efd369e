"""Keeps a local copy of a collection of the Kubernetes API up to date, by list and watch.

After a 410 it lists again. After any other end of a watch it watches from the last resourceVersion, which
bookmarks keep recent. After each failure, and after each watch that ended early, it waits with exponential
back-off, and before that as long as the server asks for.
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
from driver.kube.client import PATIENT_SECONDS, KubeClient, Object
from driver.kube.errors import BadRequest, Gone, Silent
from driver.kube.watch import WatchStream

EventType = Literal["ADDED", "MODIFIED", "DELETED"]

_PAGE_SIZE = 500
# A page for the slices of one node, which has fewer. To the API server's priority and fairness a list costs
# as much as its limit in objects of average size, whatever the selector leaves of them: with 500 it takes
# the place of ten requests (SizeBasedListCostEstimate, list_work_estimator.go).
NODE_PAGE_SIZE = 16
_WATCH_SECONDS = 300
# How long a watch may be silent. API servers send a bookmark each minute (defaultBookmarkFrequency). If none
# comes, the server may be gone although the connection is alive, since TCP keep-alive reaches only a proxy in
# between.
_IDLE_SECONDS = 120.0
# As in client-go's reflector. When an API server ends, the watches of all nodes end in the same moment.
_FIRST_BACKOFF_SECONDS = 0.8
_MOST_BACKOFF_SECONDS = 10.0
# A watch that lasted as long as the longest wait is followed by the next one at once.
_LASTING_SECONDS = _MOST_BACKOFF_SECONDS


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected objects: the path of their collection, and the values of their fields.

    ``fields`` maps dotted paths to values, ``{"spec.nodeName": "a"}``; the server selects by them.
    ``newer_fields`` are alike, but if an older server answers 400, only this side checks them (ResourceSlices
    can be selected by ``spec.pool.name`` from Kubernetes 1.37 on). ``labels`` is a label selector. A list is
    read in pages of ``page_size``.
    """

    path: str
    fields: Mapping[str, str]
    newer_fields: Mapping[str, str]
    page_size: int = _PAGE_SIZE
    labels: str = ""


class Reflector:
    """A local copy of the selected objects, by namespace and name.

    ``run`` works in the caller's thread until ``stop`` is set and ``wake`` was called. There it calls
    ``on_event`` after each change of the copy, ``on_list`` with the number of objects after each list, and
    ``on_failure`` with each error and the seconds until the next try. ``synced`` is set after the first
    complete list, ``watching`` while a watch is connected: then the copy is up to date. Objects for which
    ``concerns`` is false are left out. Callers must not change the objects. Reading is thread-safe.
    An ApiError of a function that is called here is no failure of the server: ``run`` raises RuntimeError.
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
        self._on_event = _not_of_the_server(on_event)
        self._on_list = _not_of_the_server(on_list)
        self._on_failure = on_failure
        self._concerns = concerns
        self._backoff = backoff or Backoff(_FIRST_BACKOFF_SECONDS, _MOST_BACKOFF_SECONDS)
        self._asked_fields = {**selection.fields, **selection.newer_fields}
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str], Object] = {}
        self._seen = ""
        self._stream: WatchStream | None = None
        self.synced = threading.Event()
        self.watching = threading.Event()

    def snapshot(self) -> tuple[list[Object], str]:
        """The objects, and the resourceVersion up to which all their changes have been seen."""
        with self._lock:
            return list(self._objects.values()), self._seen

    def wake(self) -> None:
        """End the current watch at once; if ``stop`` is set, ``run`` returns."""
        with self._lock:
            stream = self._stream
        if stream is not None:
            stream.close()

    def run(self) -> None:
        """List and watch until stopped."""
        while not self._stop.is_set():
            error: ApiError | None = None
            has_version = bool(self._seen)
            try:
                if not has_version:
                    self._list()
                if self._watch():
                    continue
            # 410: the server no longer has the changes since that resourceVersion, so only a list helps.
            except Gone as gone:
                self._seen, error = "", gone
                # An API server that has just started knows no earlier changes. This is no failure.
                if has_version:
                    continue
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
        selectors = {"fieldSelector": fields, "labelSelector": self._selection.labels}
        return {name: text for name, text in selectors.items() if text}

    def _selects(self, item: Object) -> bool:
        wanted = self._selection.newer_fields
        return self._concerns(item) and all(_field(item, path) == value for path, value in wanted.items())

    def _list(self) -> None:
        """Read all pages and replace the copy. Raises Gone if the list expired between two pages."""
        found: dict[tuple[str, str], Object] = {}
        params = {**self._params(), "limit": str(self._selection.page_size)}
        while True:
            answer = self._client.get(self._selection.path, params, timeout_seconds=PATIENT_SECONDS)
            group_version = answer.get("apiVersion")
            kind = str(answer.get("kind", "")).removesuffix("List")
            for item in answer.get("items") or []:
                # The items of a list have neither apiVersion nor kind, unlike those of a watch.
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
        """Make the copy equal to a list, and report the differences."""
        with self._lock:
            before, self._objects, self._seen = self._objects, found, version
        for key, old in before.items():
            # Another UID under the same name: the object was deleted and made again meanwhile.
            if key not in found or _uid(found[key]) != _uid(old):
                self._on_event("DELETED", old)
        for key, item in found.items():
            known = before.get(key)
            if known is None or _uid(known) != _uid(item):
                self._on_event("ADDED", item)
            elif _version(known) != _version(item):
                self._on_event("MODIFIED", item)

    def _watch(self) -> bool:
        """Follow the changes until the watch ends. Returns whether the next one may begin at once."""
        # As in client-go: at random, so that the watches of many nodes do not all end at the same time.
        seconds = _WATCH_SECONDS + random.randrange(_WATCH_SECONDS)  # noqa: S311 # spreads load, no secret
        params = {
            **self._params(),
            "resourceVersion": self._seen,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        started, is_lasting = self._clock(), False
        stream = self._client.watch(self._selection.path, params, idle_seconds=self._idle_seconds)
        with self._lock:
            self._stream = stream
        self.watching.set()
        # wake() may have come before the stream was there.
        if self._stop.is_set():
            stream.close()
        try:
            for kind, item in stream:
                self._take(kind, item)
        except Silent:
            # Not a failure: it lasted for as long as a watch may be silent.
            pass
        finally:
            self.watching.clear()
            with self._lock:
                self._stream = None
            # A watch that lasted ends the back-off, however it ended: the failures before it are over.
            is_lasting = self._clock() - started >= _LASTING_SECONDS
            if is_lasting:
                self._backoff.reset()
        return is_lasting

    def _take(self, kind: str, item: Object) -> None:
        """Apply one event of the watch to the copy, and report it."""
        key = _key(item)
        with self._lock:
            # Bookmarks have a resourceVersion and nothing else. They keep it recent while no object changes.
            self._seen = _version(item)
            if kind == "BOOKMARK":
                return
            known = key in self._objects
            # An object that no longer matches stays in the watch if only this side selects. For the copy it
            # is gone.
            gone = kind == "DELETED" or not self._selects(item)
            if gone:
                self._objects.pop(key, None)
            else:
                self._objects[key] = item
        if gone and known:
            self._on_event("DELETED", item)
        elif not gone:
            self._on_event("MODIFIED" if known else "ADDED", item)


def _not_of_the_server(told: Callable[..., None]) -> Callable[..., None]:
    """The function with another error in place of ApiError, for which a list or a watch would be repeated."""

    def tell(*args: object) -> None:
        try:
            told(*args)
        except ApiError as error:
            raise RuntimeError("a function that hears of objects failed at the API server") from error

    return tell


def _key(item: Object) -> tuple[str, str]:
    metadata = item["metadata"]
    return str(metadata.get("namespace", "")), str(metadata.get("name", ""))


def _uid(item: Object) -> str:
    return str(item["metadata"].get("uid", ""))


def _version(item: Object) -> str:
    return str(item["metadata"].get("resourceVersion", ""))


def _field(item: Object, path: str) -> str:
    """The value at a dotted path as the server's selectors see it: a string, empty if it is absent."""
    value: Any = item
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
