"""The served kinds in OpenAPI: what clients need to explain and to write objects, paths, types, patch rules.

Go for custom kinds: apiextensions-apiserver/pkg/controller/openapi/builder.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

from envtest.embedded.api.patching import APPLY, JSON_PATCH, MERGE, STRATEGIC
from envtest.embedded.api.resources import Catalogue, Resource
from envtest.embedded.api.wire import json_bytes
from envtest.embedded.schema.types import FieldType, fields_of, type_of

Object = dict[str, Any]

_NOT_IN_V2 = frozenset({"allOf", "anyOf", "oneOf", "not", "nullable", "default"})

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
_METADATA = "meta.v1.ObjectMeta"
_LIST_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
_LIST_METADATA_SCHEMA: Object = {
    "type": "object",
    "properties": {
        "continue": {"type": "string"},
        "remainingItemCount": {"type": "integer", "format": "int64"},
        "resourceVersion": {"type": "string"},
        "selfLink": {"type": "string"},
    },
}
_SCHEMAS, _DEFINITIONS = "#/components/schemas/", "#/definitions/"
_CONVENTIONS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_API_VERSION_TEXT = (
    "APIVersion defines the versioned schema of this representation of an object. Servers should convert "
    "recognized schemas to the latest internal value, and may reject unrecognized values. More info: "
    f"{_CONVENTIONS}#resources"
)
_KIND_TEXT = (
    "Kind is a string value representing the REST resource this object represents. Servers may infer this "
    f"from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: "
    f"{_CONVENTIONS}#types-kinds"
)
_EMBEDDED_API_VERSION_TEXT = (
    "apiVersion defines the versioned schema of this representation of an object. More info: "
    f"{_CONVENTIONS}#resources"
)
_EMBEDDED_KIND_TEXT = (
    "kind is a string value representing the type of this object. In CamelCase. More info: "
    f"{_CONVENTIONS}#types-kinds"
)

V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
NOTHING_IN_V2 = b""
"""An empty OpenAPI v2 document as protobuf: kubectl reads v2 where v3 lacks a kind."""


def index_v3(catalogue: Catalogue) -> Object:
    """Where the document of each group and version is."""
    names = [("", "v1"), *((group, one) for group in catalogue.groups() for one in catalogue.versions(group))]
    entries: Object = {}
    for group, version in names:
        path = f"apis/{group}/{version}" if group else f"api/{version}"
        # Clients may keep a document for as long as its hash is the same.
        digest = _hash(catalogue.of_version(group, version))
        entries[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": entries}


def document_v3(catalogue: Catalogue, path: str) -> Object | None:
    """The document of ``api/v1`` or ``apis/GROUP/VERSION``, None where there is none."""
    match path.strip("/").split("/"):
        case ["api", version]:
            group = ""
        case ["apis", group, version]:
            pass
        case _:
            return None
    resources = catalogue.of_version(group, version)
    return _document(resources) if resources else None


def document_v2(catalogue: Catalogue) -> Object:
    """All served kinds in OpenAPI v2, as JSON has them."""
    definitions: Object = {}
    paths: Object = {}
    for group in ("", *catalogue.groups()):
        for version in catalogue.versions(group):
            document = _document(catalogue.of_version(group, version))
            definitions |= {name: _v2(one) for name, one in document["components"]["schemas"].items()}
            paths |= {path: _v2_operations(one) for path, one in document["paths"].items()}
    info = {"title": "Kubernetes", "version": "v1.37.1"}
    return {"swagger": "2.0", "info": info, "paths": paths, "definitions": definitions}


def _v2_operations(operations: Object) -> Object:
    return {
        method: {
            **{key: value for key, value in one.items() if key != "requestBody"},
            "parameters": [{**each, **each["schema"]} for each in one["parameters"]],
            "consumes": list(one.get("requestBody", {}).get("content", ("application/json",))),
        }
        for method, one in operations.items()
    }


def _v2(schema: Any) -> Any:
    """A schema without what OpenAPI v2 does not have, or what older kubectl took wrong.

    Go: ToStructuralOpenAPIV2 in apiextensions-apiserver/pkg/controller/openapi/v2.
    """
    if isinstance(schema, bool):
        return schema
    result = {key: value for key, value in schema.items() if key not in _NOT_IN_V2}
    for one in (schema, *schema.get("allOf", ())):
        if "$ref" in one:
            result["$ref"] = one["$ref"].replace(_SCHEMAS, _DEFINITIONS)
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") is True
    if is_open or schema.get("nullable") or schema.get("x-kubernetes-int-or-string") is True:
        for key in ("type", "properties", "items", "additionalProperties", "required", "enum", "format"):
            result.pop(key, None)
    for key in ("items", "additionalProperties"):
        if key in result:
            result[key] = _v2(result[key])
    if "properties" in result:
        result["properties"] = {name: _v2(one) for name, one in result["properties"].items()}
    return result


@lru_cache(maxsize=256)
def _hash(resources: tuple[Resource, ...]) -> str:
    return hashlib.sha512(json_bytes(_document(resources))).hexdigest().upper()


@lru_cache(maxsize=256)
def _document(resources: tuple[Resource, ...]) -> Object:
    schemas: dict[str, Object] = {}
    paths: dict[str, Object] = {}
    for resource in resources:
        paths |= _paths(resource)
        if resource.custom is None:
            _add_kind(resource, schemas)
        else:
            _add_custom_kind(resource, schemas)
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
    kinds = (APPLY, JSON_PATCH, MERGE, *((STRATEGIC,) if resource.custom is None else ()))
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


def _add_custom_kind(resource: Resource, schemas: dict[str, Object]) -> None:
    custom = resource.custom
    assert custom is not None
    prefix = ".".join([*reversed(resource.group.split(".")), resource.version])
    _add(_METADATA, schemas)
    schemas[_LIST_METADATA] = _LIST_METADATA_SCHEMA
    schema = {"type": "object", **_unfolded(custom.raw_schema)}
    if custom.raw_schema:
        schema["properties"] = {**schema.get("properties", {}), **_object_properties()}
    selectable = [{"fieldPath": path} for path in custom.selectable]
    more = {"x-kubernetes-selectable-fields": selectable} if selectable else {}
    names = {"x-kubernetes-group-version-kind": [_names(resource, resource.kind)]}
    schemas[f"{prefix}.{resource.kind}"] = {**schema, **names, **more}
    text = f"List of {resource.plural}. More info: {_CONVENTIONS}"
    items = {"$ref": f"{_SCHEMAS}{prefix}.{resource.kind}"}
    metadata = {"allOf": [{"$ref": f"{_SCHEMAS}{_LIST_METADATA}"}]}
    schemas[f"{prefix}.{resource.list_kind}"] = {
        "description": f"{resource.list_kind} is a list of {resource.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            **_object_properties(),
            "items": {"description": text, "type": "array", "items": items},
            "metadata": {
                "description": f"Standard list metadata. More info: {_CONVENTIONS}#types-kinds",
                **metadata,
            },
        },
        "x-kubernetes-group-version-kind": [_names(resource, resource.list_kind)],
        **more,
    }


def _object_properties() -> Object:
    """The fields of every object."""
    reference = {"$ref": f"{_SCHEMAS}{_full(_METADATA)}"}
    text = f"Standard object's metadata. More info: {_CONVENTIONS}#metadata"
    return {
        "apiVersion": {"type": "string", "description": _API_VERSION_TEXT},
        "kind": {"type": "string", "description": _KIND_TEXT},
        "metadata": {"description": text, "allOf": [reference]},
    }


def _unfolded(schema: Any) -> Any:
    """A schema of a definition as it is published: what its extensions imply is written out."""
    if not isinstance(schema, dict):
        return schema
    result = dict(schema)
    for key in ("items", "additionalProperties"):
        if key in schema:
            result[key] = _unfolded(schema[key])
    if "properties" in schema:
        result["properties"] = {name: _unfolded(one) for name, one in schema["properties"].items()}
    if schema.get("x-kubernetes-int-or-string") is True and not {"anyOf", "allOf"} & schema.keys():
        result["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if schema.get("x-kubernetes-embedded-resource") is True:
        embedded = _object_properties()
        embedded["apiVersion"] = {"type": "string", "description": _EMBEDDED_API_VERSION_TEXT}
        embedded["kind"] = {"type": "string", "description": _EMBEDDED_KIND_TEXT}
        result["properties"] = {**result.get("properties", {}), **embedded}
        required = list(schema.get("required") or ())
        result["required"] = required + [one for one in ("kind", "apiVersion") if one not in required]
    return result


def _add(name: str, schemas: dict[str, Object]) -> None:
    if _full(name) in schemas:
        return
    properties: dict[str, Object] = {}
    schemas[_full(name)] = {"type": "object", "properties": properties}
    for key, kind in fields_of(name).items():
        properties[key] = _schema(kind, schemas)


def _schema(kind: FieldType, schemas: dict[str, Object]) -> Object:
    if kind.union:
        # As Kubernetes does it: JSONSchemaPropsOrBool and the like say nothing of their type.
        return {"description": "a schema, or what may stand in its place"}
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
