"""What a CustomResourceDefinition says of one version of its kind, parsed once, and its types for merges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from envtest.embedded.schema.types import DEDUCED, FieldType, type_of
from kubernetes_rules.custom_resources.schema import Schema

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column that ``kubectl get`` prints: its name and type, and where its value is (JSONPath)."""

    name: str
    type: str
    path: str
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class CustomKind:
    """One version of a custom kind.

    ``schema`` is that of the version, ``raw_schema`` how the definition has it. ``schemas`` has those of all
    versions by apiVersion, and ``stored_as`` is the apiVersion that objects are stored in. ``selectable`` are
    the fields for field selectors, without a leading dot. ``scale`` has the paths of the definition for the
    scale subresource. ``is_ending`` says that the definition is being
    deleted: then nothing can be created. ``deprecation`` is a warning for each request, if any. ``seen`` has
    stored objects by their identity, each with its form in this version.
    """

    schema: Schema
    raw_schema: Mapping[str, Any]
    schemas: Mapping[str, Schema]
    stored_as: str
    type: FieldType
    columns: tuple[Column, ...] = ()
    selectable: tuple[str, ...] = ()
    scale: Mapping[str, str] | None = None
    has_status: bool = False
    is_ending: bool = False
    deprecation: str = ""
    seen: dict[int, tuple[Object, Object]] = field(default_factory=dict)


def custom_type(schema: Schema) -> FieldType:
    """The type of a custom kind's objects."""
    found = _type(schema)
    # Whatever the schema says of these fields, the server knows them itself.
    rest = DEDUCED if found is DEDUCED else found.of
    return replace(found, shape="struct", of=rest, members={**found.members, **_object_members()})


def _object_members() -> dict[str, FieldType]:
    text, metadata = FieldType("string"), FieldType("struct", "meta.v1.ObjectMeta")
    return {"apiVersion": text, "kind": text, "metadata": metadata}


def _type(schema: Schema) -> FieldType:
    """As structured-merge-diff sees the schema (kube-openapi, pkg/schemaconv)."""
    default = schema.default if isinstance(schema.default, (str, int, float, bool)) else None
    if schema.x_int_or_string:
        return DEDUCED
    match schema.type:
        case "array" if schema.items is not None:
            keys = {"map": schema.x_list_map_keys, "set": ()}.get(schema.x_list_type or "")
            return FieldType("list", of=_type(schema.items), keys=keys)
        case "object" | "":
            return _object_type(schema)
        case "string" | "boolean":
            return FieldType(schema.type, default=default)
        case "integer" | "number":
            return FieldType("number", default=default)
    return FieldType("any")


def _object_type(schema: Schema) -> FieldType:
    is_open = schema.x_preserve_unknown_fields
    atomic = schema.x_map_type == "atomic"
    if schema.values is not None and not schema.properties:
        return FieldType("map", of=_type(schema.values), atomic=atomic)
    members = {name: _type(one) for name, one in schema.properties.items()}
    if schema.x_embedded_resource:
        members |= _object_members()
    if not members and not atomic:
        return DEDUCED if is_open or schema.type == "" or schema.knows_keys else FieldType("struct")
    return FieldType("struct", of=DEDUCED if is_open else None, members=members, atomic=atomic)


def object_metadata() -> FieldType:
    """The type of ``metadata``."""
    found = type_of("v1", "ConfigMap")
    assert found is not None
    return found.fields["metadata"]


def value_at(item: Any, path: str) -> Any:
    """What is at a path of fields such as ``.spec.replicas``; None where nothing is, or no path."""
    for step in path.strip(".").split("."):
        item = item.get(step) if isinstance(item, dict) else None
    return item
