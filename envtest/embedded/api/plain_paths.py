"""Answers the paths that are about no resource: health, version, discovery; and unknown ones.

Discovery is the plain one, document by document. OpenAPI says only that fields and dry runs are checked here,
which kubectl asks before it sends an object.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from envtest.embedded.api.resources import GROUPS, VERSION, Resource, of_group
from envtest.embedded.api.served import ServedApi
from envtest.embedded.api.statuses import status_body
from envtest.embedded.api.wire import HttpRequest, json_bytes

Object = dict[str, Any]

JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
_HEALTH = ("healthz", "livez", "readyz")
_NOT_HERE = "the server could not find the requested resource"
_NOT_SO = "the server does not allow this method on the requested resource"
_BUILD = ("gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform")
_CHECKED = [{"name": name, "in": "query"} for name in ("dryRun", "fieldValidation")]
"""The parameters that kubectl looks for."""

_PLACES = {f"api/{VERSION}": "", **{f"apis/{group}/{VERSION}": group for group in GROUPS}}
"""The groups by their paths."""


@dataclass(frozen=True, slots=True)
class PlainAnswer:
    """An answer that is ready to be sent; ``media_type`` is its Content-Type."""

    code: int
    data: bytes
    media_type: str = JSON


def plain_answer(api: ServedApi, head: HttpRequest) -> PlainAnswer:
    """The answer to a path that is about no resource."""
    path = head.target.partition("?")[0]
    if path.strip("/") in _HEALTH:
        return PlainAnswer(200, b"ok", _TEXT)
    if path == "/openapi/v2":
        # kubectl reads it where v3 lacks a kind: there is nothing more in it.
        return PlainAnswer(200, b"", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
    document = _document(api, path.strip("/"))
    if document is None:
        return _unknown_path(path)
    return PlainAnswer(200, json_bytes(document)) if head.method == "GET" else _status(405, _NOT_SO)


def _document(api: ServedApi, path: str) -> Object | None:
    """The document at a path, None where there is none."""
    if path in _PLACES:
        return _resource_list(_PLACES[path])
    described = path.removeprefix("openapi/v3/")
    if described in _PLACES:
        return _openapi(_PLACES[described])
    match path.split("/"):
        case ["version"]:
            return _version(api.minor)
        case ["openapi", "v3"]:
            return {"paths": {one: {"serverRelativeURL": f"/openapi/v3/{one}"} for one in _PLACES}}
        case ["api"]:
            return {"kind": "APIVersions", "versions": [VERSION]}
        case ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in GROUPS]}
        case ["apis", name] if name in GROUPS:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}
    return None


def _unknown_path(path: str) -> PlainAnswer:
    """The 404 of a path that is none of any resource: a Status below a served group, else a text."""
    match path.split("/"):
        case ["", "api", *_]:
            return _status(404, _NOT_HERE)
        case ["", "apis", group, *_] if group in GROUPS:
            return _status(404, _NOT_HERE)
    return PlainAnswer(404, b"404 page not found\n", _TEXT)


def _status(code: int, text: str) -> PlainAnswer:
    return PlainAnswer(code, json_bytes(status_body(code, text, details={})))


def _version(minor: str) -> Object:
    """What ``/version`` answers for Kubernetes 1 and a minor version, which may end with a plus."""
    about = {"major": "1", "minor": minor, "gitVersion": f"v1.{minor.rstrip('+')}.2"}
    # Clients ask for these fields, too.
    return about | dict.fromkeys(_BUILD, "")


def _openapi(group: str) -> Object:
    """The patches of a group's resources with the parameters that are looked at."""
    paths: Object = {}
    for resource in of_group(group):
        kind = {"group": group, "version": resource.version, "kind": resource.kind}
        patch = {"parameters": _CHECKED, "x-kubernetes-group-version-kind": kind}
        paths[f"/{resource.plural}/{{name}}"] = {"patch": patch}
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.37.2"}, "paths": paths}


def _group(name: str) -> Object:
    version = {"groupVersion": f"{name}/{VERSION}", "version": VERSION}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resource_list(group: str) -> Object:
    entries: list[Object] = []
    for resource in of_group(group):
        of_all: Object = {"singularName": "", "namespaced": resource.namespaced}
        entry = {"name": resource.plural, "kind": resource.kind, "verbs": list(resource.verbs)}
        entries.append(of_all | entry | {"singularName": resource.singular} | _other_names(resource))
        for name, kind, verbs in resource.subresources:
            entry = {"name": f"{resource.plural}/{name}", "kind": kind, "verbs": list(verbs)}
            entries.append(of_all | entry | _other_group(resource, kind))
    group_version = f"{group}/{VERSION}" if group else VERSION
    return {
        "kind": "APIResourceList",
        # The list of the core group has none.
        **({"apiVersion": "v1"} if group else {}),
        "groupVersion": group_version,
        "resources": entries,
    }


def _other_names(resource: Resource) -> Object:
    """Short names and categories, by which kubectl knows the resource as well; left out where empty."""
    found = {"shortNames": resource.short_names, "categories": resource.categories}
    return {key: list(names) for key, names in found.items() if names}


def _other_group(resource: Resource, kind: str) -> Object:
    """Group and version of a subresource's kind where they are not the resource's."""
    group, version = resource.group_version_of(kind)
    return {} if group == resource.group else {"group": group, "version": version}
