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
