"""Answers the paths that are about no resource: health, version, discovery, OpenAPI; and unknown ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from envtest.embedded.api import openapi
from envtest.embedded.api.resources import GROUPS, VERSION, Resource, of_group
from envtest.embedded.api.served import ServedApi
from envtest.embedded.api.statuses import status_body
from envtest.embedded.api.wire import HttpRequest, json_bytes, yaml_bytes
from envtest.embedded.shown.forms import YAML, asked_form

Object = dict[str, Any]

_AGGREGATED = "apidiscovery.k8s.io"
"""In the Accept header of a client that wants all groups in one answer (aggregated discovery)."""

_BUILD: Object = {
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}

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


def plain_answer(api: ServedApi, head: HttpRequest) -> PlainAnswer:
    """The answer to a path that is about no resource."""
    path, _, query = head.target.partition("?")
    match path.removeprefix("/").split("/"):
        case [probe] if probe in _HEALTH:
            return PlainAnswer(200, _health(probe, query).encode(), _TEXT)
        case [probe, check] if probe in _HEALTH and check in _CHECKS:
            return PlainAnswer(200, b"ok", _TEXT)
        case ["version"] | ["version", ""]:
            document: Any = _version(api.minor)
        case ["openapi", "v2"]:
            # kubectl reads it where v3 lacks a kind: there is nothing more in it.
            return PlainAnswer(200, b"", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
        case ["openapi", "v3"]:
            document = openapi.index_v3()
        case ["openapi", "v3", *_]:
            document = openapi.document_v3(path.removeprefix("/openapi/v3/"))
            return PlainAnswer(404, b"", "") if document is None else _document(head, document)
        case _:
            return _discovery(api, head, path)
    return _document(head, document)


def _discovery(api: ServedApi, head: HttpRequest, path: str) -> PlainAnswer:
    """The document of discovery at a path, and 404 elsewhere."""
    accept = head.header("accept")
    aggregated = _AGGREGATED in accept
    document = _discovery_document(path, aggregated=aggregated, address=api.address)
    if document is None:
        return _unknown_path(head.target)
    if aggregated and document["kind"] == "APIGroupDiscoveryList":
        # client-go takes the answer for aggregated discovery only with these parameters.
        kind = f"{JSON};g={_AGGREGATED};v=v2;as=APIGroupDiscoveryList"
        return PlainAnswer(200, json_bytes(document), kind)
    return _document(head, document, is_yaml=asked_form(accept).is_yaml)


def _document(head: HttpRequest, document: Any, *, is_yaml: bool = False) -> PlainAnswer:
    if head.method != "GET":
        return _status(405, _NOT_SO)
    if is_yaml:
        return PlainAnswer(200, yaml_bytes(document), YAML)
    return PlainAnswer(200, json_bytes(document))


def _unknown_path(target: str) -> PlainAnswer:
    """The 404 of a path that is none of any resource: a Status below a served group, else a text."""
    match target.partition("?")[0].split("/"):
        case ["", "api", *_]:
            return _status(404, _NOT_HERE)
        case ["", "apis", group, *_] if group in GROUPS:
            return _status(404, _NOT_HERE)
    return PlainAnswer(404, b"404 page not found\n", _TEXT)


def _health(probe: str, query: str) -> str:
    if not any(name == "verbose" for name, _ in parse_qsl(query, keep_blank_values=True)):
        return "ok"
    return "".join(f"[+]{check} ok\n" for check in _CHECKS) + f"{probe} check passed\n"


def _status(code: int, text: str) -> PlainAnswer:
    return PlainAnswer(code, json_bytes(status_body(code, text, details={})))


def _version(minor: str) -> Object:
    """What ``/version`` answers for Kubernetes 1 and a minor version, which may end with a plus."""
    number = minor.rstrip("+")
    oldest = {"minCompatibilityMinor": str(int(number) - 1)} if number.isdecimal() else {}
    return {
        "major": "1",
        "minor": minor,
        "emulationMajor": "1",
        "emulationMinor": number,
        "minCompatibilityMajor": "1",
        **oldest,
        "gitVersion": f"v1.{number}.1",
        **_BUILD,
    }


def _discovery_document(path: str, *, aggregated: bool, address: str) -> Object | None:
    """The document at ``path`` (``/api``, ``/apis``, ``/apis/GROUP``, ``/apis/GROUP/v1``); None elsewhere.

    ``aggregated`` is whether the client takes all groups in one. ``address`` is the server's ``host:port``.
    """
    match path.strip("/").split("/"):
        case ["api"] if aggregated:
            return _aggregated([""])
        case ["api"]:
            addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
        case ["apis"] if aggregated:
            return _aggregated(GROUPS)
        case ["apis"]:
            groups = [_group(name) for name in GROUPS]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", "v1"]:
            return _resource_list("")
        case ["apis", name] if name in GROUPS:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}
        case ["apis", name, "v1"] if name in GROUPS:
            return _resource_list(name)
    return None


def _group(name: str) -> Object:
    version = {"groupVersion": f"{name}/{VERSION}", "version": VERSION}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resource_list(group: str) -> Object:
    entries: list[Object] = []
    for resource in of_group(group):
        entry: Object = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(resource.verbs),
        }
        entries.append(entry | _other_names(resource))
        for name, kind, verbs in resource.subresources:
            entries.append(
                {
                    "name": f"{resource.plural}/{name}",
                    "singularName": "",
                    "namespaced": resource.namespaced,
                    "kind": kind,
                    "verbs": list(verbs),
                    **_other_group(resource, kind),
                }
            )
    return {
        "kind": "APIResourceList",
        # The list of the core group has none.
        **({"apiVersion": "v1"} if group else {}),
        "groupVersion": f"{group}/{VERSION}" if group else VERSION,
        "resources": entries,
    }


def _aggregated(names: Sequence[str]) -> Object:
    items = [
        {
            "metadata": {"name": name} if name else {},
            "versions": [
                {
                    "version": VERSION,
                    "resources": [_entry(one) for one in of_group(name)],
                    "freshness": "Current",
                }
            ],
        }
        for name in names
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _entry(resource: Resource) -> Object:
    entry: Object = {
        "resource": resource.plural,
        "responseKind": _kind(resource, resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    entry |= _other_names(resource)
    if resource.subresources:
        entry["subresources"] = [
            {"subresource": name, "responseKind": _kind(resource, kind), "verbs": list(verbs)}
            for name, kind, verbs in resource.subresources
        ]
    return entry


def _other_names(resource: Resource) -> Object:
    """Short names and categories, by which kubectl knows the resource as well; left out where empty."""
    found = {"shortNames": resource.short_names, "categories": resource.categories}
    return {key: list(names) for key, names in found.items() if names}


def _other_group(resource: Resource, kind: str) -> Object:
    """Group and version of a subresource's kind where they are not the resource's."""
    group, version = resource.group_version_of(kind)
    return {} if group == resource.group else {"group": group, "version": version}


def _kind(resource: Resource, kind: str) -> Object:
    group, version = resource.group_version_of(kind)
    if (group, version) == (resource.group, resource.version):
        # Of its own kinds kube-apiserver leaves out what the place in the document says.
        group = version = ""
    return {"group": group, "version": version, "kind": kind}
