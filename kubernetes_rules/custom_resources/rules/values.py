"""Turns the JSON of a custom resource into values for rules, by its schema.

Source: k8s.io/apiserver/pkg/cel/common/valuesunstructured.go (UnstructuredToVal).
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from kubernetes_rules.cel.estimation.declared import escaped
from kubernetes_rules.cel.object_values import ObjectList, ObjectMap, SetList, UnknownValue, map_list
from kubernetes_rules.cel.times import Timestamp, parse_duration, parse_timestamp
from kubernetes_rules.cel.types import CelError
from kubernetes_rules.custom_resources.rules.declarations import with_metadata
from kubernetes_rules.custom_resources.schema import Schema

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_LOCAL_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?", re.ASCII)
_SCALARS: dict[str, tuple[str, tuple[type, ...]]] = {
    "integer": ("int", (int,)),
    "number": ("float", (int, float)),
    "boolean": ("bool", (bool,)),
}
"""The types of JSON for each type of a schema, and how Kubernetes names it."""


def rule_value(raw: Any, schema: Schema) -> Any:
    """The value of JSON. Raises CelError where it does not fit the schema."""
    if raw is None:
        if schema.nullable:
            return None
        raise CelError("invalid data, got null for schema with nullable=false")
    if schema.x_int_or_string:
        if type(raw) in (int, str):
            return raw
        raise CelError("invalid data, expected XIntOrString value to be either a string or integer")
    if schema.type == "object":
        return _object(raw, schema)
    if schema.type == "array":
        return _array(raw, schema)
    if schema.type == "string":
        return _text(raw, schema.format)
    return _scalar(raw, schema.type) if schema.type in _SCALARS else UnknownValue(raw)


def _scalar(raw: Any, kind: str) -> Any:
    name, types = _SCALARS[kind]
    if type(raw) not in types:
        raise CelError(f"invalid data, expected {name}, got {_go_type(raw)}")
    return float(raw) if kind == "number" else raw


def _object(raw: Any, schema: Schema) -> ObjectMap:
    if not isinstance(raw, dict):
        raise CelError("invalid data, expected a map for the provided schema with type=object")
    if schema.x_embedded_resource:
        schema = with_metadata(schema)
    is_object = bool(schema.properties)
    known = schema.properties if is_object else dict.fromkeys(raw, schema.values)
    nulls = frozenset(key for key in known if is_object and key in raw and raw[key] is None)
    seen = {
        key: rule_value(value, part)
        for key, value in raw.items()
        if key not in nulls and (part := known.get(key)) is not None
    }
    return ObjectMap(seen, raw, escapes=is_object, nulls=nulls)


def _array(raw: Any, schema: Schema) -> ObjectList:
    if not isinstance(raw, list) or schema.items is None:
        raise CelError("invalid data, expected an array for the provided schema with type=array")
    items = schema.items
    elements = [rule_value(value, items) for value in raw]
    if schema.x_list_type == "map":
        return map_list(elements, tuple(escaped(key) or key for key in schema.x_list_map_keys))
    return SetList(elements) if schema.x_list_type == "set" else ObjectList(elements)


def _text(raw: Any, kind: str) -> Any:
    if not isinstance(raw, str):
        raise CelError(f"invalid data, expected string, got {_go_type(raw)}")
    match kind:
        case "duration":
            return parse_duration(raw)
        case "date":
            if not _DATE.fullmatch(raw):
                raise CelError(f"Invalid date formatted string {raw}")
            return parse_timestamp(f"{raw}T00:00:00Z")
        case "date-time":
            return _date_time(raw)
        case "byte":
            try:
                return base64.b64decode(raw, validate=True)
            except (binascii.Error, ValueError) as error:
                raise CelError(f"Invalid byte formatted string {raw}: {error}") from error
    return raw


def _date_time(raw: str) -> Timestamp:
    if not raw:
        return Timestamp(0)
    return parse_timestamp(f"{raw}Z" if _LOCAL_TIME.fullmatch(raw) else raw)


def _go_type(raw: Any) -> str:
    names = {str: "string", bool: "bool", int: "int64", float: "float64", list: "[]interface {}"}
    return names.get(type(raw), "map[string]interface {}")
