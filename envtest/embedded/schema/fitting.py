"""Checks what is applied against its type: server-side apply takes nothing that the type does not know.

Go: sigs.k8s.io/structured-merge-diff/typed, validate.go and helpers.go.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from envtest.embedded.schema.types import FieldType

_WORDS: dict[type, str] = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    list: "[]interface {}",
    dict: "map[string]interface {}",
}
_NUMERIC = ("numeric (int or float)", (int, float))
_SCALARS: dict[str, tuple[str, tuple[type, ...]]] = {
    **dict.fromkeys(("int32", "int64", "number"), _NUMERIC),
    **dict.fromkeys(("string", "bytes", "time", "microTime"), ("string", (str,))),
    "boolean": ("boolean", (bool,)),
    **dict.fromkeys(("intOrString", "quantity"), ("any scalar", (int, float, str, bool))),
}
"""What a scalar of each shape has to be, in words and as types."""


def fit_errors(value: Any, kind: FieldType) -> list[str]:
    """Where a value does not fit its type, as lines such as ``.spec.size: expected numeric ...``."""
    return [f"{path}: {text}" if path else text for path, text in _errors(value, kind, "")]


def _errors(value: Any, kind: FieldType, path: str) -> Iterator[tuple[str, str]]:
    if value is None:
        return
    expected, types = _SCALARS.get(kind.shape, ("", ()))
    if kind.shape in ("struct", "map"):
        yield from _map_errors(value, kind, path)
    elif kind.shape == "list":
        yield from _list_errors(value, kind, path)
    elif types and not (isinstance(value, types) and isinstance(value, bool) <= (bool in types)):
        found = _WORDS[type(value)] if int in types and str not in types else _shown(value)
        yield path, f"expected {expected}, got {found}"


def _map_errors(value: Any, kind: FieldType, path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield path, f"expected map, got {_shown(value)}"
        return
    fields = kind.fields
    for name in sorted(value):
        known = fields.get(name, kind.of)
        if known is None:
            yield f"{path}.{name}", "field not declared in schema"
        else:
            yield from _errors(value[name], known, f"{path}.{name}")


def _list_errors(value: Any, kind: FieldType, path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, list):
        yield path, f"expected list, got {_shown(value)}"
        return
    seen: set[str] = set()
    for index, entry in enumerate(value):
        step = f"[{index}]"
        if kind.keys is not None:
            if kind.keys and not isinstance(entry, dict):
                text = "associative list with keys may not have non-map elements"
                yield path, f"element {index}: {text}"
                return
            step = entry_step(entry, kind)
            if step in seen:
                yield path, f"duplicate entries for key {step}"
            seen.add(step)
        yield from _errors(entry, kind.item, f"{path}{step}")


def entry_step(entry: Any, kind: FieldType) -> str:
    """How paths name an entry of a list: by its keys or, in a set, by its value."""
    if not kind.keys:
        return f"[={json.dumps(entry)}]"
    keys = {key: entry.get(key, kind.item.field_type(key).default) for key in sorted(kind.keys)}
    return "[" + ",".join(f"{key}={json.dumps(one)}" for key, one in keys.items() if one is not None) + "]"


def _shown(value: Any) -> str:
    """A value as Go prints one of value.valueUnstructured."""
    text = (
        json.dumps(value)
        if isinstance(value, str)
        else str(value).lower()
        if isinstance(value, bool)
        else value
    )
    return f"&value.valueUnstructured{{Value:{text}}}"
