"""The served kinds in OpenAPI: the paths, types and patch rules that kubectl reads."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

from envtest.embedded.api.patching import APPLY, JSON_PATCH, MERGE, STRATEGIC
from envtest.embedded.api.resources import GROUPS, VERSION, Resource, of_group
from envtest.embedded.api.wire import json_bytes
from envtest.embedded.schema.types import FieldType, fields_of, type_of

Object = dict[str, Any]

_SCALARS: dict[str, Object] = {
    "string": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    # A quantity may be written as a text or as a number.
    "quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "time": {"type": "string", "format": "date-time"},
    "microTime": {"type": "string", "format": "date-time"},
    "intOrString": {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
    "any": {"type": "object"},
}
_NAMED_SCALARS = {
    "quantity": "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "intOrString": "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
}
"""The scalars that have a schema of their own, whose name kubectl explain shows."""
_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")
_SCHEMAS = "#/components/schemas/"


def index_v3() -> Object:
    """Where the document of each group is."""
    entries: Object = {}
    for group in ("", *GROUPS):
        path = f"apis/{group}/{VERSION}" if group else f"api/{VERSION}"
        # Clients may keep a document for as long as its hash is the same.
        digest = _hash(of_group(group))
        entries[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": entries}


def document_v3(path: str) -> Object | None:
    """The document of ``api/v1`` or ``apis/GROUP/VERSION``, None where there is none."""
    match path.strip("/").split("/"):
        case ["api", "v1"]:
            return _document(of_group(""))
        case ["apis", group, "v1"] if group in GROUPS:
            return _document(of_group(group))
    return None


@lru_cache(maxsize=256)
def _hash(resources: tuple[Resource, ...]) -> str:
    return hashlib.sha512(json_bytes(_document(resources))).hexdigest().upper()


@lru_cache(maxsize=256)
def _document(resources: tuple[Resource, ...]) -> Object:
    schemas: dict[str, Object] = {}
    paths: dict[str, Object] = {}
    for resource in resources:
        paths |= _paths(resource)
        _add_kind(resource, schemas)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.37.1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _paths(resource: Resource) -> dict[str, Object]:
    root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    scope = f"{root}/namespaces/{{namespace}}" if resource.namespaced else root
    kind = _names(resource, resource.kind)
    query = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in _WRITE_PARAMETERS]
    kinds = (APPLY, JSON_PATCH, MERGE, STRATEGIC)
    patch = {
        # kubectl looks for these to learn whether it can leave validation and dry runs to the server.
        "parameters": query,
        "requestBody": {"content": {name: {"schema": {"type": "object"}} for name in kinds}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": kind,
        "responses": {"200": {"description": "OK"}},
    }
    write = {key: value for key, value in patch.items() if key != "requestBody"}
    return {
        f"{scope}/{resource.plural}": {"post": {**write, "x-kubernetes-action": "post"}},
        f"{scope}/{resource.plural}/{{name}}": {
            "put": {**write, "x-kubernetes-action": "put"},
            "patch": patch,
        },
    }


def _add_kind(resource: Resource, schemas: dict[str, Object]) -> None:
    kind = type_of(resource.api_version, resource.kind)
    assert kind is not None
    _add(kind.ref, schemas)
    schemas[_full(kind.ref)]["x-kubernetes-group-version-kind"] = [_names(resource, resource.kind)]


def _names(resource: Resource, kind: str) -> Object:
    return {"group": resource.group, "version": resource.version, "kind": kind}


def _add(name: str, schemas: dict[str, Object]) -> None:
    if _full(name) in schemas:
        return
    properties: dict[str, Object] = {}
    schemas[_full(name)] = {"type": "object", "properties": properties}
    for key, kind in fields_of(name).items():
        properties[key] = _schema(kind, schemas)


def _schema(kind: FieldType, schemas: dict[str, Object]) -> Object:
    if kind.shape == "struct":
        _add(kind.ref, schemas)
        schema: Object = {"allOf": [{"$ref": f"{_SCHEMAS}{_full(kind.ref)}"}]}
        if kind.atomic:
            schema["x-kubernetes-map-type"] = "atomic"
    elif kind.of is not None and kind.shape == "map":
        schema = {"type": "object", "additionalProperties": _schema(kind.of, schemas)}
    elif kind.of is not None:
        schema = {"type": "array", "items": _schema(kind.of, schemas)}
        # How server-side apply merges the list; the patch keys below are for strategic merge patches.
        schema["x-kubernetes-list-type"] = "atomic" if kind.keys is None else "map" if kind.keys else "set"
        if kind.keys:
            schema["x-kubernetes-list-map-keys"] = list(kind.keys)
    elif kind.shape in _NAMED_SCALARS:
        name = _NAMED_SCALARS[kind.shape]
        schemas[name] = _SCALARS[kind.shape]
        return {"allOf": [{"$ref": f"{_SCHEMAS}{name}"}]}
    else:
        return _SCALARS[kind.shape]
    if kind.merge_key:
        schema["x-kubernetes-patch-merge-key"] = kind.merge_key
    if kind.strategies:
        schema["x-kubernetes-patch-strategy"] = ",".join(kind.strategies)
    return schema


def _full(name: str) -> str:
    prefix = "io.k8s.apimachinery.pkg.apis." if name.startswith("meta.") else "io.k8s.api."
    return prefix + name
