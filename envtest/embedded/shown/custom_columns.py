"""The table of a custom kind, whose columns its definition names.

Go: apiextensions-apiserver/pkg/registry/customresource/tableconvertor.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from envtest.embedded.schema.custom_kinds import Column
from envtest.embedded.shown.ages import age_of
from envtest.embedded.shown.json_paths import JsonPathError, found_at

Object = dict[str, Any]

_NAME = Column(
    "Name",
    "string",
    ".metadata.name",
    "name",
    "Name must be unique within a namespace. Is required when creating resources, although some resources "
    "may allow a client to request the generation of an appropriate name automatically. Name is primarily "
    "intended for creation idempotence and configuration definition. Cannot be updated. More info: "
    "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
)


def custom_table(columns: Sequence[Column], items: Iterable[Object], metadata: Object) -> Object:
    """A metav1.Table, whose rows have no objects."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [
            {
                "name": one.name,
                "type": one.type,
                "format": one.format,
                "description": one.description,
                "priority": one.priority,
            }
            for one in (_NAME, *columns)
        ],
        "rows": [
            {"cells": [item["metadata"]["name"], *(_cell(item, one) for one in columns)]} for item in items
        ],
    }


def _cell(item: Object, column: Column) -> Any:
    try:
        found = found_at(item, column.path)
    except JsonPathError:
        return None
    if not found or (found[0] is None and column.type != "string"):
        return None
    value = found[0]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match column.type:
        case "string":
            return _text(value)
        case "integer":
            return int(value) if is_number else None
        case "number":
            return float(value) if is_number else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "date" if isinstance(value, str):
            return _age(value)
    return None


def _text(value: Any) -> str:
    """A value as client-go's jsonpath prints it."""
    if isinstance(value, str):
        return value
    if value is None:
        return "<nil>"
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def _age(value: str) -> str:
    try:
        return age_of(value)
    except ValueError:
        return "<invalid>"
