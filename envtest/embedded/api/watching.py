"""Serves a watch as a stream of JSON events: objects that are there, changes, and bookmarks.

As k8s.io/apiserver does (pkg/endpoints/handlers/get.go and watch.go, pkg/storage/cacher).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from envtest.embedded.api import unforeseen
from envtest.embedded.api.reading import asked_version, table_of_resource, too_large_version
from envtest.embedded.api.requests import Request, query_flag, query_integer
from envtest.embedded.api.resources import Resource
from envtest.embedded.api.served import ServedApi, Stream
from envtest.embedded.api.statuses import status_body
from envtest.embedded.api.store import Expired, Watch
from envtest.embedded.api.wire import chunk, json_bytes, stream_head
from envtest.embedded.shown.forms import METADATA, METADATA_LIST, TABLE, Form

Object = dict[str, Any]

# --min-request-timeout of kube-apiserver, which adds up to as much again at random.
_DEFAULT_SECONDS = 1800.0
_BOOKMARK_SECONDS = 60.0
_LAST_BOOKMARK_SECONDS = 2.0
"""How long before its end a watch gets a last bookmark (nextBookmarkTime of the cacher)."""
# Marks the bookmark behind the initial events (streaming lists, KEP-3157).
_INITIAL_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What a watch asks for: its events begin after ``version``, or with the objects that are there."""

    version: int
    with_initial: bool
    from_now: bool
    bookmarks: bool
    seconds: float


class _Events:
    """Writes the events of one watch in the form that the client asked for."""

    def __init__(self, stream: Stream, request: Request, resource: Resource, form: Form) -> None:
        self._stream = stream
        self.resource = resource
        self._form = form
        self._include = request.query.get("includeObject", "")
        self._has_columns = False

    def send(self, kind: str, item: Object) -> None:
        """Send one event about a stored object."""
        self.send_as_it_is(kind, self._formed(item, self._include))

    def send_as_it_is(self, kind: str, item: Object) -> None:
        """Send one event whose object has its final form."""
        self._write(kind, json_bytes(item))

    def bookmark(self, version: int, *, ends_initial: bool = False) -> None:
        """Say that everything up to ``version`` has been sent."""
        # A bookmark is an object of the kind with a resourceVersion and nothing else.
        metadata: Object = {"resourceVersion": str(version)}
        if ends_initial:
            metadata["annotations"] = {_INITIAL_END: "true"}
        item = {"kind": self.resource.kind, "apiVersion": self.resource.api_version, "metadata": metadata}
        # Without its annotation the mark of the end would be lost.
        include = "" if ends_initial and self._include == "None" else self._include
        self.send_as_it_is("BOOKMARK", self._formed(item, include))

    def _formed(self, item: Object, include: str) -> Object:
        if self._form.kind == METADATA:
            return self._form.metadata_of(item)
        if self._form.kind != TABLE:
            return item
        metadata = {"resourceVersion": item["metadata"]["resourceVersion"]}
        table = self._form.table_of([item], table_of_resource(self.resource), metadata, include)
        # Only the first event has the columns.
        columns, self._has_columns = None if self._has_columns else table["columnDefinitions"], True
        return {**table, "columnDefinitions": columns}

    def _write(self, kind: str, data: bytes) -> None:
        self._stream.write(chunk(b'{"type":"%s","object":%s}\n' % (kind.encode(), data)))


def serve_watch(api: ServedApi, stream: Stream, request: Request, resource: Resource, form: Form) -> bool:
    """Serve a watch to its end; returns whether the connection goes on. Raises Refused (400, 422, 500).

    After a fault in the middle of the answer the connection ends, and the client sees a cut answer.
    """
    options = watch_options(request)
    selects = api.verbs.selection(request, resource)
    with api.store.changed:
        current = api.store.resource_version
        version = current if options.from_now else options.version
        # Read under the same lock as the version: no change lies between the two.
        entries = api.store.items(resource.collection) if options.with_initial else []
        oldest = api.store.oldest(resource.collection)
        watch = Watch(api.store, resource.collection, version, selects)
    stream.write(stream_head())
    events = _Events(stream, request, resource, form)
    try:
        # kube-apiserver answers 200 here too, and sends the error as an event.
        if options.with_initial and options.version > current:
            # A server that is behind would catch up within three seconds; this one has all versions.
            events.send_as_it_is("ERROR", too_large_version(options.version, current).body)
        elif version < oldest:
            text = f"too old resource version: {version} ({oldest})"
            events.send_as_it_is("ERROR", status_body(410, text))
        # No event can have the form of a list, so the answer ends at the first.
        elif form.kind != METADATA_LIST:
            for _, item in entries:
                if selects(item):
                    events.send("ADDED", item)
            if options.with_initial and options.bookmarks:
                events.bookmark(version, ends_initial=True)
            _follow(api, stream, watch, events, options)
    except unforeseen.CLIENT_GONE:
        raise
    except Exception as error:  # noqa: BLE001 - the head of the answer is sent: a cut is all that is left
        unforeseen.note(f"watch {request.path}", error)
        return False
    stream.write(chunk(b""))
    return True


def watch_options(request: Request) -> WatchOptions:
    """What the query asks for; raises Refused (400; 500 for a version that is no number)."""
    seconds = query_integer(request, "timeoutSeconds")
    text = request.query.get("resourceVersion", "")
    initial = query_flag(request, "sendInitialEvents") if "sendInitialEvents" in request.query else None
    if initial is None and text in ("", "0"):
        # Without a version, and with 0, a watch begins with an ADDED for each object that is there.
        initial = True
    version = asked_version(request)
    return WatchOptions(
        version=version,
        with_initial=bool(initial),
        from_now=bool(initial) or not version,
        bookmarks=query_flag(request, "allowWatchBookmarks"),
        # 0 is no limit, too.
        seconds=float(seconds or _DEFAULT_SECONDS),
    )


def _follow(api: ServedApi, stream: Stream, watch: Watch, events: _Events, options: WatchOptions) -> None:
    """Send events and bookmarks until the time is up, the client leaves or watches have to end."""
    generation, sent_bookmarks = api.watch_generation, api.bookmarks_due
    end = time.monotonic() + options.seconds
    next_bookmark = _next_bookmark(end)

    def ended() -> bool:
        return api.watch_generation != generation or stream.ended

    def bookmark_asked() -> bool:
        return api.bookmarks_due != sent_bookmarks

    with stream.woken(watch.wake):
        # From here on no change is missed.
        api.watch_began()
        while True:
            watch.wait(min(end, next_bookmark), lambda: ended() or bookmark_asked())
            # Asked before the events are taken: those from before the end are still sent.
            is_over = ended() or time.monotonic() >= end
            try:
                changes = watch.take_events()
            except Expired as expired:
                # The client was too slow for the history that is kept. It has to list again.
                events.send_as_it_is("ERROR", status_body(410, str(expired)))
                return
            for kind, item in changes:
                events.send(kind, item)
            if bookmark_asked() or time.monotonic() >= next_bookmark:
                sent_bookmarks = api.bookmarks_due
                next_bookmark = _next_bookmark(end)
                if options.bookmarks:
                    events.bookmark(watch.resource_version)
            if is_over:
                return


def _next_bookmark(end: float) -> float:
    """When the next bookmark is due: in a minute, or shortly before the end of the watch."""
    now = time.monotonic()
    last = end - _LAST_BOOKMARK_SECONDS
    return min(now + _BOOKMARK_SECONDS, last) if last > now else end + _BOOKMARK_SECONDS
