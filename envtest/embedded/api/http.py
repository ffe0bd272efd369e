"""Speaks HTTP for the API server: bodies, tables, warnings, Status answers, and paths without objects."""

from __future__ import annotations

import time
from dataclasses import replace
from email.utils import formatdate
from socketserver import StreamRequestHandler
from typing import Any

from envtest.embedded.api import unforeseen, wire
from envtest.embedded.api.faults import Fault
from envtest.embedded.api.patching import APPLY, check_patch_type
from envtest.embedded.api.plain_paths import JSON, plain_answer
from envtest.embedded.api.pod_paths import serve_log, serve_proxy
from envtest.embedded.api.reading import table_of_resource
from envtest.embedded.api.requests import Request, parse_request
from envtest.embedded.api.resources import GROUPS, Resource
from envtest.embedded.api.served import ServedApi, Stream
from envtest.embedded.api.statuses import Refused, internal_error, status_body
from envtest.embedded.api.verbs import body_resource, resource_of
from envtest.embedded.api.watching import serve_watch
from envtest.embedded.schema import protobuf
from envtest.embedded.schema.decoding import BodyError, DecodingError, object_of, read_json, read_yaml
from envtest.embedded.shown.forms import Form, asked_form

_MOST_HANG_SECONDS = 600.0
_CREATED = 201
_TEXT = "text/plain; charset=utf-8"
_YAML = "application/yaml"
_BODY_TYPES = ("", JSON, _YAML)
_LISTS = ("list", "deletecollection")
_DELETE_OPTIONS = "DeleteOptions"


class Handler(StreamRequestHandler):
    """One connection; the listener gives it the API server that it speaks for."""

    # TCP_NODELAY: events of a watch are sent at once.
    disable_nagle_algorithm = True
    # Buffered, so that the head and the body of an answer are sent together; each answer is flushed.
    wbufsize = -1
    server: Any

    @property
    def _api(self) -> ServedApi:
        api: ServedApi = self.server.api
        return api

    def handle(self) -> None:
        """Answer requests until the client or an error ends the connection."""
        try:
            while (head := wire.read_head(self.rfile)) is not None:
                try:
                    body = wire.read_body(head, self.rfile)
                except wire.BodyTooLarge:
                    text = f"Request entity too large: limit is {wire.MOST_BODY_BYTES}"
                    self._send_json(413, status_body(413, text), {"Connection": "close"})
                    return
                if not self._answered(head, body) or head.closes:
                    return
        except wire.BadRequestLine:
            self._send(400, b"400 Bad Request", _TEXT, {"Connection": "close"})

    def _answered(self, head: wire.HttpRequest, body: bytes) -> bool:
        """Answer one request, with 500 where the server itself fails; whether the connection goes on."""
        try:
            return self._answer(head, body)
        except unforeseen.CLIENT_GONE:
            raise
        except Exception as error:  # noqa: BLE001 - the client has to hear that it was no fault of its own
            unforeseen.note(f"{head.method} {head.target}", error)
            self._send_json(500, internal_error(error))
            return True

    def _answer(self, head: wire.HttpRequest, body: bytes) -> bool:
        """Answer one request; whether the connection goes on."""
        # Without the parameter fieldManager, this part of the User-Agent is the name of the field manager.
        client = head.header("user-agent").partition("/")[0]
        request = parse_request(head.method, head.target, client)
        try:
            known = request if request is not None and request.verb else None
            user = self._api.admit_client(head, known)
        except Refused as refused:
            self._send_json(refused.code, refused.body)
            return True
        if request is None or (request.group and request.group not in GROUPS):
            plain = plain_answer(self._api, head)
            self._send(plain.code, plain.data, plain.media_type)
            return True
        request = replace(request, user=user)
        api = self._api
        api.requests.append(request)
        fault = api.faults.take(request.verb or "", request.path)
        if fault is not None and self._ended_by(fault):
            # The caller closes the connection, which then has got no answer.
            return fault.kind != "close"
        return self._served(request, head, body, fault)

    def _served(self, request: Request, head: wire.HttpRequest, body: bytes, fault: Fault | None) -> bool:
        warnings: list[str] = []
        form = Form()
        try:
            resource = resource_of(request)
            stream = Stream(self._api, self.server, self.connection, self.wfile)
            if request.subresource == "log":
                return serve_log(self._api, stream, request, resource)
            if request.subresource == "proxy":
                return serve_proxy(self._api, self.wfile, request, resource)
            # kubectl get asks for a Table: the server chooses the columns.
            form, include = asked_form(head.header("accept")), request.query.get("includeObject", "")
            if request.verb == "watch":
                return serve_watch(self._api, stream, request, resource, form)
            stale = fault.resource_version if fault is not None and fault.kind == "stale" else None
            code, answer = self._done(request, resource, head, body, stale, warnings)
            if answer.get("kind") != "Status":
                taken = body_resource(request, resource)
                formed = form.of_list if request.verb in _LISTS else form.of_object
                answer = formed(answer, table_of_resource(taken), include)
        except Refused as refused:
            code, answer = refused.code, refused.body
        headers = _warning_headers(warnings) | _retry_header(answer)
        self._send_json(code, answer, headers)
        return True

    def _done(
        self,
        request: Request,
        resource: Resource,
        head: wire.HttpRequest,
        body: bytes,
        stale: int | None,
        warnings: list[str],
    ) -> tuple[int, Any]:
        verbs = self._api.verbs
        taken = resource.kind_of(request.subresource)
        match request.verb:
            case "get":
                return 200, verbs.get(request, resource, stale)
            case "list":
                return 200, verbs.list(request, resource, stale)
            case "create":
                return _CREATED, verbs.create(request, resource, _parsed(head, body, taken), warnings)
            case "update":
                return 200, verbs.update(request, resource, _parsed(head, body, taken), warnings)
            case "patch":
                kind = head.header("content-type").partition(";")[0]
                check_patch_type(kind)
                patch = _patch(body, is_apply=kind == APPLY)
                # An apply of an object that is not there creates it, and is answered 201.
                created, item = verbs.patch(request, resource, patch, kind, warnings)
                return _CREATED if created else 200, item
            case "delete":
                return 200, verbs.delete(request, resource, _options(head, body), warnings)
            case _:
                return 200, verbs.deletecollection(request, resource, _options(head, body), warnings)

    def _ended_by(self, fault: Fault) -> bool:
        """Whether the fault has dealt with the request."""
        if fault.kind in ("hang", "delay"):
            # A release of the fault, which a stop of the server does too, ends the wait earlier.
            most = _MOST_HANG_SECONDS if fault.kind == "hang" else fault.delay_seconds
            fault.released.wait(most)
            return not self._api.running
        if fault.kind == "status":
            seconds = fault.retry_after_seconds
            headers = {} if seconds is None else {"Retry-After": str(seconds)}
            self._send_json(fault.code, status_body(fault.code, "a fault was asked for"), headers)
        return fault.kind in ("status", "close")

    def _send_json(self, code: int, body: Any, headers: dict[str, str] | None = None) -> None:
        self._send(code, wire.json_bytes(body), JSON, headers)

    def _send(self, code: int, data: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        date = formatdate(time.time() + self._api.ahead_seconds, usegmt=True)
        more = {"Date": date, **(headers or {})}
        self.wfile.write(wire.answer_bytes(code, data, kind, more))
        self.wfile.flush()


def _parsed(head: wire.HttpRequest, body: bytes, kind: str) -> Any:
    """The body as its Content-Type says, which is to be an object of ``kind``; raises Refused (400, 415)."""
    content_type = head.header("content-type").partition(";")[0].strip().lower()
    is_protobuf = content_type == protobuf.CONTENT_TYPE
    if not is_protobuf and content_type not in _BODY_TYPES:
        text = "the body of the request was in an unknown format - accepted media types include: "
        raise Refused(415, f"{text}application/json, application/yaml, {protobuf.CONTENT_TYPE}")
    try:
        if is_protobuf:
            return protobuf.from_protobuf(body)
        value = read_yaml(body) if content_type == _YAML else read_json(body)
        return object_of(value)
    except (DecodingError, BodyError) as error:
        text = f"the object provided is unrecognized (must be of type {kind}): {error}"
        raise Refused(400, text) from error


def _options(head: wire.HttpRequest, body: bytes) -> Any:
    """The DeleteOptions in the body, None where there is no body."""
    return _parsed(head, body, _DELETE_OPTIONS) if body else None


def _patch(body: bytes, *, is_apply: bool) -> Any:
    try:
        return read_yaml(body) if is_apply else read_json(body)
    except BodyError as error:
        raise Refused(400, f"error decoding patch: {error}") from error


def _retry_header(answer: Any) -> dict[str, str]:
    """The Retry-After header of an answer that says how long its client is to wait, empty for others."""
    details = answer.get("details") if answer.get("kind") == "Status" else None
    seconds = (details or {}).get("retryAfterSeconds")
    return {} if seconds is None else {"Retry-After": str(seconds)}


def _warning_headers(warnings: list[str]) -> dict[str, str]:
    if not warnings:
        return {}
    # 299 is a warning that lasts, the hyphen stands for the agent; kubectl prints the text.
    escaped = (text.replace("\\", "\\\\").replace('"', '\\"') for text in warnings)
    return {"Warning": ", ".join(f'299 - "{text}"' for text in escaped)}
