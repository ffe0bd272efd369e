"""Answers the paths that are about no resource: health, version, discovery, OpenAPI; and unknown ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from envtest.embedded.api import discovery, openapi
from envtest.embedded.api.served import ServedApi
from envtest.embedded.api.statuses import status_body
from envtest.embedded.api.wire import HttpRequest, json_bytes, yaml_bytes
from envtest.embedded.shown.forms import YAML, asked_form

JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
_HEALTH = ("healthz", "livez", "readyz")
_CHECKS = ("ping", "log", "etcd")
_NOT_HERE = "the server could not find the requested resource"
_NOT_SO = "the server does not allow this method on the requested resource"


@dataclass(frozen=True, slots=True)
class PlainAnswer:
    """An answer that is ready to be sent; ``media_type`` is its Content-Type."""

    code: int
    data: bytes
    media_type: str = JSON


def plain_answer(api: ServedApi, head: HttpRequest) -> PlainAnswer | None:
    """The answer to a path that is about no resource, None for all other paths."""
    path, _, query = head.target.partition("?")
    match path.removeprefix("/").split("/"):
        case [probe] if probe in _HEALTH:
            return PlainAnswer(200, _health(probe, query).encode(), _TEXT)
        case [probe, check] if probe in _HEALTH and check in _CHECKS:
            return PlainAnswer(200, b"ok", _TEXT)
        case ["version"] | ["version", ""]:
            document: Any = discovery.version(api.minor)
        case ["openapi", "v2"]:
            # kubectl reads it where v3 lacks a kind: there is nothing more in it.
            return PlainAnswer(200, b"", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
        case ["openapi", "v3"]:
            document = openapi.index_v3(api.catalogue)
        case ["openapi", "v3", *_]:
            document = openapi.document_v3(api.catalogue, path.removeprefix("/openapi/v3/"))
            return PlainAnswer(404, b"", "") if document is None else _document(head, document)
        case _:
            return _discovery(api, head, path)
    return _document(head, document)


def _discovery(api: ServedApi, head: HttpRequest, path: str) -> PlainAnswer | None:
    """The document of discovery at a path; None elsewhere."""
    accept = head.header("accept")
    aggregated = discovery.AGGREGATED in accept
    document = discovery.discovery_document(api.catalogue, path, aggregated=aggregated, address=api.address)
    if document is None:
        return None
    if aggregated and document["kind"] == "APIGroupDiscoveryList":
        # client-go takes the answer for aggregated discovery only with these parameters.
        kind = f"{JSON};g={discovery.AGGREGATED};v=v2;as=APIGroupDiscoveryList"
        return PlainAnswer(200, json_bytes(document), kind)
    return _document(head, document, is_yaml=asked_form(accept).is_yaml)


def _document(head: HttpRequest, document: Any, *, is_yaml: bool = False) -> PlainAnswer:
    if head.method != "GET":
        return _status(405, _NOT_SO)
    if is_yaml:
        return PlainAnswer(200, yaml_bytes(document), YAML)
    return PlainAnswer(200, json_bytes(document))


def unknown_path(api: ServedApi, target: str) -> PlainAnswer:
    """The 404 of a path that is none of any resource: a Status below a served group, else a text."""
    match target.partition("?")[0].split("/"):
        case ["", "api", *_]:
            return _status(404, _NOT_HERE)
        case ["", "apis", group, *_] if group in api.catalogue.groups():
            return _status(404, _NOT_HERE)
    return PlainAnswer(404, b"404 page not found\n", _TEXT)


def _health(probe: str, query: str) -> str:
    if not any(name == "verbose" for name, _ in parse_qsl(query, keep_blank_values=True)):
        return "ok"
    return "".join(f"[+]{check} ok\n" for check in _CHECKS) + f"{probe} check passed\n"


def _status(code: int, text: str) -> PlainAnswer:
    return PlainAnswer(code, json_bytes(status_body(code, text, details={})))
