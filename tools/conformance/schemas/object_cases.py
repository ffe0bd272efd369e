"""Cases of custom objects, each for one rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tools.conformance.area import Case
from tools.conformance.schemas.random_schemas import FORMATS, METADATA, NUMBERS, TEXTS

_META = {"name": "a", "namespace": "default", "resourceVersion": "1"}
_WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": _META}
_VALUES: tuple[Any, ...] = (
    None, True, False, *NUMBERS, 1.0, 1.5, -0.5, 1e20, 1e-7, 3.5e38, "", "a", "abc", [], [1], {}, {"a": 1},
)  # fmt: skip

_KEYED = {
    "type": "object",
    "required": ["k"],
    "properties": {"k": {"type": "string"}, "v": {"type": "string", "maxLength": 2}},
}
_SCHEMAS: tuple[dict[str, Any], ...] = (
    {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}, {"type": "object"},
    {"type": "string", "nullable": True}, {"x-kubernetes-int-or-string": True},
    {"type": "string", "default": "d"}, {"type": "integer", "format": "int32"},
    {"type": "number", "format": "float"}, {"type": "integer", "minimum": 2.5},
    {"type": "number", "multipleOf": 0.5}, {"type": "integer", "maximum": 5, "exclusiveMaximum": True},
    {"type": "integer", "enum": [1, 2]},
    {"x-kubernetes-preserve-unknown-fields": True, "enum": ["a", 1, {"a": 1}]},
    {"type": "string", "minLength": 1, "maxLength": 2}, {"type": "string", "pattern": "^a+$"},
    {"type": "array", "items": {"type": "integer"}, "minItems": 1},
    {"type": "object", "additionalProperties": True},
    {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1},
    {"type": "string", "anyOf": [{"maxLength": 1}, {"pattern": "c"}]},
    {"type": "string", "not": {"enum": ["a"]}}, {"type": "string", "allOf": [{"minLength": 2}]},
    {"type": "string", "oneOf": [{"maxLength": 1}, {"maxLength": 2}]},
)  # fmt: skip


def _of(node: dict[str, Any], value: Any, **more: Any) -> Case:
    """A case of a value at ``spec.a``."""
    spec = {"type": "object", "properties": {"a": node}}
    schema = {"type": "object", "properties": {"spec": spec}}
    return {"op": "custom", "schema": schema, "object": _WIDGET | {"spec": {"a": value}}} | more


def written_objects() -> Iterator[Case]:
    """All cases."""
    for name in FORMATS:
        yield _of({"type": "array", "items": {"type": "string", "format": name}}, list(TEXTS))
    for node in _SCHEMAS:
        yield _of({"type": "array", "items": node}, list(_VALUES))
        values = dict(zip("abcdefg", _VALUES, strict=False))
        yield _of({"type": "object", "additionalProperties": node}, values)
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True}
    embedded["x-kubernetes-preserve-unknown-fields"] = True
    for metadata in METADATA:
        yield _of(embedded, {"apiVersion": "v1", "kind": "A", "metadata": metadata, "x": 1})
    for kind in ("set", "map"):
        items = _KEYED if kind == "map" else {"type": "string"}
        node = {"type": "array", "x-kubernetes-list-type": kind, "items": items}
        node |= {"x-kubernetes-list-map-keys": ["k"]} if kind == "map" else {}
        entries = ["a", "b", "a", "a"]
        yield _of(node, [{"k": entry} for entry in entries] if kind == "map" else entries)
    yield from _updates()


def _updates() -> Iterator[Case]:
    """What an update leaves alone may be wrong; what it changes may not."""
    listed = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "items": _KEYED,
    }
    for node, value, before in (
        ({"type": "string", "maxLength": 2}, "abc", "abc"),
        ({"type": "string", "maxLength": 2}, "abc", "abd"),
        ({"type": "string", "maxLength": 2, "anyOf": [{"pattern": "z"}]}, "abc", "abc"),
        (listed, [{"k": "a", "v": "abc"}, {"k": "b"}], [{"k": "a", "v": "abc"}]),
        (listed, [{"k": "b", "v": "abc"}], [{"k": "a", "v": "abc"}]),
        (listed, [{"k": "a"}, {"k": "a"}], [{"k": "a"}, {"k": "a"}]),
        ({"type": "array", "items": {"type": "integer"}}, ["a", "b"], ["a", "b"]),
        ({"type": "array", "items": {"type": "integer"}}, ["a", "b"], ["a"]),
        ({"type": "integer"}, 1.5, 1.5),
        (_KEYED | {"x-kubernetes-preserve-unknown-fields": True}, {"x": 1}, {"x": 1}),
        (_KEYED, {"v": "abc"}, {"v": "abc"}),
    ):
        yield _of(node, value, old=_WIDGET | {"spec": {"a": before}})
    scale = {"specReplicasPath": ".spec.a", "statusReplicasPath": ".status.a", "labelSelectorPath": ".spec.a"}
    for shown in (1, -1, 2**31, "a", 1.5, None, {"b": [1, None]}):
        yield _of({"x-kubernetes-preserve-unknown-fields": True}, shown, scale=scale)
