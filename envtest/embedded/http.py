"""Speaks HTTP for the API server: bodies, Status answers, and watches as chunked streams."""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from envtest.embedded.requests import parse_request
from envtest.embedded.statuses import Refused, status_body
from envtest.embedded.store import Watch
from envtest.embedded.verbs import collection_of

if TYPE_CHECKING:
    from envtest.embedded.requests import Request
    from envtest.embedded.server import EmbeddedApiServer

_MOST_HANG_SECONDS = 600.0
_DEFAULT_WATCH_SECONDS = 1800.0
_CREATED = 201


class Handler(BaseHTTPRequestHandler):
    """One connection; the listener gives it the API server that it speaks for."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: Any

    @property
    def _api(self) -> EmbeddedApiServer:
        api: EmbeddedApiServer = self.server.api
        return api

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # the name is the library's
        """Requests are remembered by the API server, not printed."""

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        if self._answered_without_resource():
            return
        request = parse_request(self.command, self.path)
        if request is None:
            self._send_json(404, status_body(404, f"there is nothing at {self.path}"))
            return
        self._api.heard(request)
        token = self._api.accepted_bearer
        if token is not None and self.headers.get("Authorization") != f"Bearer {token}":
            self._send_json(401, status_body(401, "Unauthorized"))
            return
        if self._met_fault(request):
            return
        try:
            if request.verb == "watch":
                self._watch(request)
                return
            code, answer = self._served(request, json.loads(body) if body else {})
        except Refused as refused:
            code, answer = refused.code, refused.body
        except ValueError as error:
            code, answer = 400, status_body(400, f"the body is not JSON: {error}")
        self._send_json(code, answer)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 # the library calls these

    def _answered_without_resource(self) -> bool:
        path = self.path.partition("?")[0]
        if path in ("/healthz", "/readyz", "/livez"):
            self._send(200, b"ok", "text/plain")
        elif path == "/version":
            self._send_json(200, {"major": "1", "minor": "37", "gitVersion": "v1.37.1"})
        else:
            return False
        return True

    def _served(self, request: Request, body: Any) -> tuple[int, Any]:
        verbs = self._api.verbs
        match request.verb:
            case "get":
                return 200, verbs.get(request)
            case "list":
                return 200, verbs.list(request)
            case "create":
                return _CREATED, verbs.create(request, body)
            case "update":
                return 200, verbs.update(request, body)
            case "patch":
                kind = (self.headers.get("Content-Type") or "").partition(";")[0]
                return 200, verbs.patch(request, body, kind)
            case "delete":
                return 200, verbs.delete(request, body)
            case _:
                return 200, verbs.deletecollection(request)

    def _met_fault(self, request: Request) -> bool:
        """Whether a fault has dealt with the request."""
        fault = self._api.faults.take(request.verb, request.path)
        if fault is None:
            return False
        if fault.kind == "hang":
            fault.released.wait(_MOST_HANG_SECONDS)
            return not self._api.running
        if fault.kind == "close":
            self.close_connection = True
            return True
        headers = {} if fault.retry_after_seconds is None else {"Retry-After": str(fault.retry_after_seconds)}
        self._send_json(fault.code, status_body(fault.code, "a fault was asked for"), headers)
        return True

    def _watch(self, request: Request) -> None:
        api = self._api
        selects = api.verbs.selection(request)
        asked = int(request.query.get("resourceVersion") or 0)
        with api.store.changed:
            version = asked or api.store.resource_version
            initial = [] if asked else api.verbs.list(request)["items"]
            gone = version < api.store.compacted
        self._start_stream()
        if gone:
            self._send_event("ERROR", status_body(410, f"too old resource version: {version}"))
        else:
            for item in initial:
                self._send_event("ADDED", item)
            self._stream(request, Watch(api.store, collection_of(request), version, selects))
        self._send_chunk(b"")

    def _stream(self, request: Request, watch: Watch) -> None:
        """Send events and bookmarks until the time is up, the server stops or watches have to end."""
        api, listener, generation = self._api, self.server, self._api.watch_generation
        sent_bookmarks = api.bookmarks_due
        end = time.monotonic() + float(request.query.get("timeoutSeconds") or _DEFAULT_WATCH_SECONDS)
        next_bookmark = time.monotonic() + api.bookmark_seconds

        def ended() -> bool:
            return api.watch_generation != generation or not api.serves(listener)

        def bookmark_asked() -> bool:
            return api.bookmarks_due != sent_bookmarks

        api.watch_began()
        while True:
            watch.wait(min(end, next_bookmark), lambda: ended() or bookmark_asked())
            for kind, item in watch.take_events():
                self._send_event(kind, {**item, "apiVersion": request.api_version})
            if bookmark_asked() or time.monotonic() >= next_bookmark:
                sent_bookmarks = api.bookmarks_due
                next_bookmark = time.monotonic() + api.bookmark_seconds
                self._send_bookmark(request, watch)
            if ended() or time.monotonic() >= end:
                return

    def _send_bookmark(self, request: Request, watch: Watch) -> None:
        if request.query.get("allowWatchBookmarks") == "true":
            metadata = {"resourceVersion": str(watch.resource_version), "creationTimestamp": None}
            self._send_event("BOOKMARK", {"apiVersion": request.api_version, "metadata": metadata})

    def _start_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def _send_event(self, kind: str, item: Any) -> None:
        self._send_chunk(json.dumps({"type": kind, "object": item}).encode() + b"\n")

    def _send_chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _send_json(self, code: int, body: Any, headers: dict[str, str] | None = None) -> None:
        self._send(code, json.dumps(body).encode(), "application/json", headers)

    def _send(self, code: int, data: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()
