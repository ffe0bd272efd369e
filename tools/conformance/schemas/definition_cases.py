"""Cases of CustomResourceDefinitions, each for one rule."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from tools.conformance.area import Case

_SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}},
        "status": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}},
    },
}
_DEFAULTED = {"type": "string", "default": "a"}
KEYWORDS: tuple[tuple[str, Any], ...] = (
    ("type", "object"), ("type", "array"), ("type", "string"), ("type", ""), ("type", "foo"),
    ("type", "null"), ("nullable", True), ("default", "a"),
    ("default", {"a": 1, "metadata": {"name": "-"}}), ("default", [1, 2]), ("title", "t"),
    ("description", "d"), ("uniqueItems", True), ("$ref", ""), ("id", "x"), ("$schema", "x"),
    ("patternProperties", {"a": {}}), ("definitions", {"a": {"type": "object"}}), ("additionalItems", True),
    ("dependencies", {"a": ["b"]}), ("items", {"type": "string"}), ("items", [{"type": "string"}]),
    ("items", {"type": "object", "nullable": True}), ("additionalProperties", True),
    ("additionalProperties", False), ("additionalProperties", {"type": "string", "default": "a"}),
    ("properties", {}), ("pattern", "["),
    ("properties", {"metadata": {"type": "object", "properties": {"name": _DEFAULTED}}}),
    ("properties", {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}),
    ("properties", {"metadata": {"type": "string"}, "kind": {"type": "integer"}, "apiVersion": {}}),
    ("properties", {"a": {"type": "string", "nullable": True}, "b": {"type": "object"}}),
    ("x-kubernetes-int-or-string", True), ("x-kubernetes-preserve-unknown-fields", True),
    ("x-kubernetes-preserve-unknown-fields", False), ("x-kubernetes-embedded-resource", True),
    ("x-kubernetes-list-type", "set"), ("x-kubernetes-list-type", "map"), ("x-kubernetes-list-type", "foo"),
    ("x-kubernetes-list-map-keys", ["a"]), ("x-kubernetes-list-map-keys", ["b", "b", "zz"]),
    ("x-kubernetes-map-type", "atomic"), ("x-kubernetes-map-type", "foo"), ("enum", []), ("maxLength", 0),
    ("anyOf", [{"type": "integer"}, {"type": "string"}]),
    ("anyOf", [{"properties": {"zz": {"type": "string"}}}]),
    ("allOf", [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"items": {"pattern": "a"}}]),
    ("oneOf", [{"additionalProperties": {"type": "string"}}, {"default": 1, "nullable": True}]),
    ("not", {"properties": {"metadata": {}}, "title": "a", "x-kubernetes-list-type": "set"}),
    ("not", {"allOf": [{"items": {}, "x-kubernetes-validations": [{"rule": "true"}]}]}), ("format", "foo"),
    ("required", ["a"]), ("externalDocs", {"url": "u"}), ("example", 1), ("maxProperties", 1),
    ("multipleOf", 0.5),
)  # fmt: skip
"""Keywords to set anywhere in a schema."""

_VERSION = {"name": "v2", "served": True, "storage": False}
_SPEC_CHANGES: tuple[dict[str, Any], ...] = (
    {"group": ""}, {"group": "A.b"}, {"group": "a.k8s.io"}, {"scope": "Namespace"}, {"scope": ""},
    {"names": {}}, {"names": {"plural": "Widgets", "kind": "a b", "shortNames": ["A"], "categories": [""]}},
    {"names": {"plural": "widgets", "kind": "Widget", "listKind": "Widget"}}, {"versions": []},
    {"versions": [_VERSION]}, {"versions": [_VERSION | {"schema": {"openAPIV3Schema": _SCHEMA}}] * 2},
    {"preserveUnknownFields": True}, {"conversion": {"strategy": "Foo"}},
    {"conversion": {"strategy": "None", "webhook": {"clientConfig": {"url": "https://a"}}}},
)  # fmt: skip
_VERSION_CHANGES: tuple[dict[str, Any], ...] = (
    {"name": "V1"}, {"served": False}, {"storage": False}, {"deprecated": True, "deprecationWarning": "old"},
    {"deprecationWarning": ""}, {"deprecated": True, "deprecationWarning": "a\x00b"}, {"schema": None},
    {"subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.a", "statusReplicasPath": "a"}}},
    {"subresources": {"scale": {"specReplicasPath": ".status.a", "labelSelectorPath": ".a"}}},
    {"additionalPrinterColumns": [{"name": "", "type": "foo", "format": "foo", "jsonPath": "a"}]},
    {"additionalPrinterColumns": [{"name": "a", "type": "date", "format": "date", "jsonPath": ".spec.a"}]},
    {"selectableFields": [{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.a"}, {"jsonPath": ".spec"}]},
    {"selectableFields": [{"jsonPath": path} for path in (".metadata.name", ".spec.zz", "spec", ".spec[0]")]},
    {"selectableFields": [{"jsonPath": ".status.b"}]},
)  # fmt: skip
_EMBEDDED = {"type": "object", "x-kubernetes-embedded-resource": True}
_PRESERVED = {"x-kubernetes-preserve-unknown-fields": True}
_NODES: tuple[dict[str, Any], ...] = (
    _EMBEDDED, _EMBEDDED | _PRESERVED, _EMBEDDED | _PRESERVED | {"type": "string"}, _PRESERVED,
    _EMBEDDED | _PRESERVED | {"default": {"kind": "A", "apiVersion": "v1", "metadata": {"name": "a/b"}}},
    _EMBEDDED | {"properties": {"metadata": {"type": "object", "properties": {"name": _DEFAULTED}}}},
    _EMBEDDED | {"properties": {"kind": {"type": "string", "default": "a b"}}},
    {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
    {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "string"}, {"type": "integer"}]},
    {"type": "array"}, {"type": "array", "items": {}}, {"type": "array", "items": {"type": "array"}},
    {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"},
    {"type": "array", "items": {"type": "string", "nullable": True}, "x-kubernetes-list-type": "set"},
    {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"},
    {"type": "string", "default": 1}, {"type": "string", "default": "b", "enum": ["a"]},
    {"type": "object", "default": {"a": 1}}, {"type": "string", "format": "foo"},
    {"type": "integer", "format": "date"},
    {"type": "string", "x-kubernetes-validations": [{"rule": "", "reason": "a", "fieldPath": ".a"}]},
    {"type": "string", "x-kubernetes-validations": [{"rule": "a\n", "message": " ", "fieldPath": " "}]},
    {"type": "object", "additionalProperties": True,
     "x-kubernetes-validations": [{"rule": "", "fieldPath": ".a"}]},
)  # fmt: skip


def definition(schema: dict[str, Any] | None = None) -> dict[str, Any]:
    """A definition of widgets.example.com, valid if the schema is."""
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": copy.deepcopy(_SCHEMA) if schema is None else schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "widgets", "kind": "Widget"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def written_definitions() -> Iterator[Case]:
    """All cases."""
    yield {"op": "definition", "object": definition()}
    for keyword, value in KEYWORDS:
        for path in ((), ("spec",), ("spec", "a")):
            yield {"op": "definition", "object": definition(_with(path, {keyword: value}))}
    for changes in _SPEC_CHANGES:
        crd = definition()
        crd["spec"] |= copy.deepcopy(changes)
        yield {"op": "definition", "object": crd}
    for changes in _VERSION_CHANGES:
        crd = definition()
        crd["spec"]["versions"][0] |= copy.deepcopy(changes)
        yield {"op": "definition", "object": crd}
    for node in _NODES:
        yield {"op": "definition", "object": definition(_with(("spec", "c"), node))}


def _with(path: tuple[str, ...], node: dict[str, Any]) -> dict[str, Any]:
    """A schema with keywords at a path of properties."""
    schema: dict[str, Any] = copy.deepcopy(_SCHEMA)
    place = schema
    for name in path:
        place = place["properties"].setdefault(name, {})
    place.update(copy.deepcopy(node))
    return schema
