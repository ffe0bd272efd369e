"""The resources that a CustomResourceDefinition defines: one for each served version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envtest.embedded.api.resources import Resource, version_order
from envtest.embedded.schema.custom_kinds import Column, CustomKind, custom_type
from kubernetes_rules.custom_resources.schema import Schema, parse_schema

Object = dict[str, Any]

_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_SUBRESOURCE_VERBS = ("get", "patch", "update")
_AGE = Column(
    "Age",
    "date",
    ".metadata.creationTimestamp",
    description="CreationTimestamp is a timestamp representing the server time when this object was created. "
    "It is not guaranteed to be set in happens-before order across separate operations. Clients may not set "
    "this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. "
    "Null for lists. More info: "
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
)
"""The column of kinds that define none."""


def resources_of(definition: Object) -> tuple[Resource, ...]:
    """A resource for each served version, with the accepted names."""
    spec, names = definition["spec"], definition["status"]["acceptedNames"]
    raw = {one["name"]: _raw_schema(one) for one in spec["versions"]}
    schemas = {f"{spec['group']}/{name}": parse_schema(one) for name, one in raw.items()}
    return tuple(
        Resource(
            spec["group"],
            names["plural"],
            names["kind"],
            namespaced=spec["scope"] == "Namespaced",
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            verbs=_VERBS,
            subresources=_subresources(one, names["kind"]),
            version=one["name"],
            singular_name=names.get("singular", ""),
            list_kind_name=names.get("listKind", ""),
            custom=_kind(spec, one, raw[one["name"]], schemas),
        )
        for one in spec["versions"]
        if one.get("served")
    )


def _raw_schema(version: Object) -> Object:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def _subresources(version: Object, kind: str) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    found = version.get("subresources") or {}
    kinds = (("status", kind), ("scale", "Scale"))
    return tuple((name, of, _SUBRESOURCE_VERBS) for name, of in kinds if name in found)


def _kind(spec: Object, version: Object, raw: Object, schemas: Mapping[str, Schema]) -> CustomKind:
    schema = schemas[f"{spec['group']}/{version['name']}"]
    stored = next(one["name"] for one in spec["versions"] if one.get("storage"))
    subresources = version.get("subresources") or {}
    return CustomKind(
        schema=schema,
        raw_schema=raw,
        schemas=schemas,
        stored_as=f"{spec['group']}/{stored}",
        type=custom_type(schema),
        columns=tuple(map(_column, version.get("additionalPrinterColumns") or ())) or (_AGE,),
        selectable=tuple(one["jsonPath"].removeprefix(".") for one in version.get("selectableFields") or ()),
        scale=subresources.get("scale"),
        has_status="status" in subresources,
        deprecation=_deprecation(spec, version),
    )


def _column(column: Object) -> Column:
    return Column(
        column["name"],
        column["type"],
        column["jsonPath"],
        column.get("format", ""),
        column.get("description")
        or f"Custom resource definition column (in JSONPath format): {column['jsonPath']}",
        column.get("priority", 0),
    )


def _deprecation(spec: Object, version: Object) -> str:
    """What requests to a deprecated version are warned of (defaultDeprecationWarning)."""
    if not version.get("deprecated"):
        return ""
    if version.get("deprecationWarning") is not None:
        return str(version["deprecationWarning"])
    group, kind = spec["group"], spec["names"]["kind"]
    newer = [
        one["name"]
        for one in spec["versions"]
        if one.get("served")
        and not one.get("deprecated")
        and version_order(one["name"]) < version_order(version["name"])
    ]
    text = f"{group}/{version['name']} {kind} is deprecated"
    return f"{text}; use {group}/{min(newer, key=version_order)} {kind}" if newer else text
