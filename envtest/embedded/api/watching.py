"""Serves a watch as a stream of JSON events: objects that are there, changes, and bookmarks."""

from __future__ import annotations

import time
from io import BufferedIOBase
from typing import Any

from envtest.embedded.api import unforeseen
from envtest.embedded.api.reading import asked_version, resource_table, shown
from envtest.embedded.api.requests import Request, query_integer
from envtest.embedded.api.resources import Resource
from envtest.embedded.api.served import ServedApi
from envtest.embedded.api.statuses import Refused, status_body
from envtest.embedded.api.store import Watch
from envtest.embedded.api.wire import chunk, json_bytes, stream_head

Object = dict[str, Any]

# --min-request-timeout of kube-apiserver, which adds up to as much again at random.
_DEFAULT_SECONDS = 1800.0
# Marks the bookmark behind the initial events (streaming lists, KEP-3157).
_BOOKMARK_SECONDS = 60.0
_INITIAL_END = "k8s.io/initial-events-end"


class _Stream:
    """Writes the events of one watch."""

    def __init__(self, sink: BufferedIOBase, request: Request, resource: Resource, *, as_table: bool) -> None:
        self._sink = sink
        self._request = request
        self.resource = resource
        self._as_table = as_table

    def start(self) -> None:
        """Send the head of the answer."""
        self._write(stream_head())

    def send(self, kind: str, item: Object) -> None:
        """Send one event about a stored object."""
        self.send_raw(kind, self._form(shown(self.resource, item)))

    def send_raw(self, kind: str, item: Object) -> None:
        """Send one event whose object is already in its final form."""
        self._write(chunk(json_bytes({"type": kind, "object": item}) + b"\n"))

    def bookmark(self, version: int, *, ends_initial: bool = False) -> None:
        """Say that everything up to ``version`` has been sent."""
        # A bookmark is an object of the kind with a resourceVersion and nothing else.
        metadata: Object = {"resourceVersion": str(version), "creationTimestamp": None}
        if ends_initial:
            metadata["annotations"] = {_INITIAL_END: "true"}
        item = {"kind": self.resource.kind, "apiVersion": self.resource.api_version, "metadata": metadata}
        self.send_raw("BOOKMARK", item)

    def end(self) -> None:
        """Send the end of the answer."""
        self._write(chunk(b""))

    def _form(self, item: Object) -> Object:
        if not self._as_table:
            return item
        metadata = {"resourceVersion": item["metadata"]["resourceVersion"]}
        include = self._request.query.get("includeObject", "Metadata")
        return resource_table(self.resource, [item], metadata, include)

    def _write(self, data: bytes) -> None:
        self._sink.write(data)
        self._sink.flush()


def serve_watch(
    api: ServedApi, listener: object, sink: BufferedIOBase, request: Request, *, as_table: bool
) -> bool:
    """Serve a watch to its end; returns whether the connection goes on. Raises Refused (400).

    After a fault in the middle of the answer the connection ends, and the client sees a cut answer.
    """
    resource = api.verbs.resource_of(request)
    selects = api.verbs.selection(request)
    asked = asked_version(request)
    initial_wanted = request.query.get("sendInitialEvents")
    if initial_wanted is not None and request.query.get("resourceVersionMatch") != "NotOlderThan":
        raise Refused(422, "resourceVersionMatch: Forbidden: sendInitialEvents requires NotOlderThan")
    with api.store.changed:
        # Without a version, and with 0, a watch begins with an ADDED for each object that is there.
        from_now = not asked or initial_wanted == "true"
        version = api.store.resource_version if from_now else asked
        with_initial = initial_wanted == "true" or (not asked and initial_wanted is None)
        # Read under the same lock as the version: no change lies between the two.
        entries = api.store.items(resource.collection) if with_initial else []
        oldest = api.store.oldest(resource.collection)
    seconds = query_integer(request, "timeoutSeconds")
    stream = _Stream(sink, request, resource, as_table=as_table)
    stream.start()
    try:
        # kube-apiserver answers 200 here too, and sends the 410 as an event.
        if version < oldest:
            stream.send_raw("ERROR", status_body(410, f"too old resource version: {version} ({oldest})"))
        else:
            for _, item in entries:
                if selects(item):
                    stream.send("ADDED", item)
            if initial_wanted == "true" and request.query.get("allowWatchBookmarks") == "true":
                stream.bookmark(version, ends_initial=True)
            watch = Watch(api.store, resource.collection, version, selects)
            _follow(api, listener, request, watch, stream, _DEFAULT_SECONDS if seconds is None else seconds)
    except ConnectionError:
        raise  # the client is gone
    except Exception as error:  # noqa: BLE001 - the head of the answer is sent: a cut is all that is left
        unforeseen.note(f"watch {request.path}", error)
        return False
    stream.end()
    return True


def _follow(
    api: ServedApi, listener: object, request: Request, watch: Watch, stream: _Stream, seconds: float
) -> None:
    """Send events and bookmarks until the time is up, the server stops or watches have to end."""
    generation, sent_bookmarks = api.watch_generation, api.bookmarks_due
    end = time.monotonic() + seconds
    next_bookmark = time.monotonic() + _BOOKMARK_SECONDS
    bookmarks = request.query.get("allowWatchBookmarks") in ("true", "1")

    def ended() -> bool:
        is_served = api.catalogue.still_serves(stream.resource)
        return api.watch_generation != generation or not api.serves(listener) or not is_served

    def bookmark_asked() -> bool:
        return api.bookmarks_due != sent_bookmarks

    # From here on no change is missed.
    api.watch_began()
    while True:
        watch.wait(min(end, next_bookmark), lambda: ended() or bookmark_asked())
        # Before the events are taken: those from before the end are still sent.
        is_over = ended() or time.monotonic() >= end
        for kind, item in watch.take_events():
            stream.send(kind, item)
        if bookmark_asked() or time.monotonic() >= next_bookmark:
            sent_bookmarks = api.bookmarks_due
            next_bookmark = time.monotonic() + _BOOKMARK_SECONDS
            if bookmarks:
                stream.bookmark(watch.resource_version)
        if is_over:
            return
