"""Describes the API to clients: groups, versions and resources, and the served kinds in OpenAPI.

OpenAPI has what clients need to write objects: paths, types, patch rules.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

from envtest.embedded.api.patching import APPLY, JSON_PATCH, MERGE, STRATEGIC
from envtest.embedded.api.resources import Catalogue, Resource
from envtest.embedded.schema.types import FieldType, fields_of, type_of

Object = dict[str, Any]

AGGREGATED = "apidiscovery.k8s.io"
"""In the Accept header of a client that wants all groups in one answer (aggregated discovery)."""

_VERSION: Object = {
    "major": "1",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}

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
_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")

CUSTOM_KINDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
"""The path at which kubectl looks for a kind that discovery does not list."""

V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
NOTHING_IN_V2 = b""
"""An empty OpenAPI v2 document as protobuf: kubectl reads v2 where v3 lacks a kind."""


def version(minor: str) -> Object:
    """What ``/version`` answers for Kubernetes 1 and a minor version, which may end with a plus."""
    return {**_VERSION, "minor": minor, "gitVersion": f"v1.{minor.rstrip('+')}.1"}


def discovery_document(catalogue: Catalogue, path: str, *, aggregated: bool, address: str) -> Object | None:
    """The document at ``path`` (``/api``, ``/apis``, ``/apis/GROUP``, ``/apis/GROUP/v1``); None elsewhere.

    ``aggregated`` is whether the client takes all groups in one. ``address`` is the server's ``host:port``.
    """
    groups = catalogue.groups()
    match path.strip("/").split("/"):
        case ["api"] if aggregated:
            return _aggregated(catalogue, [""])
        case ["api"]:
            addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
        case ["apis"] if aggregated:
            return _aggregated(catalogue, groups)
        case ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in groups]}
        case ["api", "v1"]:
            return _resource_list(catalogue, "")
        case ["apis", name] if name in groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}
        case ["apis", name, "v1"] if name in groups:
            return _resource_list(catalogue, name)
    return None


def _group(name: str) -> Object:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resource_list(catalogue: Catalogue, group: str) -> Object:
    entries: list[Object] = []
    for resource in _of_group(catalogue, group):
        entry: Object = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(resource.verbs),
            # Opaque to clients: any text will do that stays the same.
            "storageVersionHash": hashlib.sha256(resource.qualified_name.encode()).hexdigest()[:11] + "=",
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
    group_version = f"{group}/v1" if group else "v1"
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": entries,
    }


def _aggregated(catalogue: Catalogue, names: list[str]) -> Object:
    items = [
        {
            "metadata": {"name": name, "creationTimestamp": None} if name else {"creationTimestamp": None},
            "versions": [
                {
                    "version": "v1",
                    "resources": [_entry(one) for one in _of_group(catalogue, name)],
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
        "responseKind": _kind(resource.group, resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    entry |= _other_names(resource)
    if resource.subresources:
        entry["subresources"] = [
            {
                "subresource": name,
                "responseKind": _kind(resource.group_version_of(kind)[0], kind),
                "verbs": list(verbs),
            }
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


def _kind(group: str, kind: str) -> Object:
    return {"group": group, "version": "v1", "kind": kind}


def _of_group(catalogue: Catalogue, group: str) -> tuple[Resource, ...]:
    return tuple(resource for resource in catalogue.resources if resource.group == group)


def no_custom_kinds() -> Object:
    """An empty list of CustomResourceDefinitions."""
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinitionList", "items": []}


def openapi_v3_index(catalogue: Catalogue) -> Object:
    """Where the document of each group and version is."""
    paths = ["api/v1", *(f"apis/{name}/v1" for name in catalogue.groups())]
    # Clients may keep a document for as long as its hash is the same.
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash=embedded"} for path in paths}}


def openapi_v3(catalogue: Catalogue, path: str) -> Object | None:
    """The document of ``api/v1`` or ``apis/GROUP/v1``, None where there is none."""
    match path.strip("/").split("/"):
        case ["api", "v1"]:
            group = ""
        case ["apis", group, "v1"] if group in catalogue.groups():
            pass
        case _:
            return None
    return _openapi_v3(_of_group(catalogue, group))


@cache
def _openapi_v3(resources: tuple[Resource, ...]) -> Object:
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
    root = f"/apis/{resource.group}/v1" if resource.group else "/api/v1"
    scope = f"{root}/namespaces/{{namespace}}" if resource.namespaced else root
    kind = {"group": resource.group, "version": "v1", "kind": resource.kind}
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
    names = {"group": resource.group, "version": "v1", "kind": resource.kind}
    schemas[_full(kind.ref)]["x-kubernetes-group-version-kind"] = [names]


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
        schema: Object = {"allOf": [{"$ref": f"#/components/schemas/{_full(kind.ref)}"}]}
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
