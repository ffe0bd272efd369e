"""JSON values as Go prints them, which messages of Kubernetes contain."""

from __future__ import annotations

from typing import Any


def go_text(value: Any) -> str:
    """A JSON value as Go's %v prints it."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{go_text(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_text, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "<nil>", True: "true", False: "false"}[value]
    return str(value)


def go_string(value: Any) -> str:
    """A JSON value as Go's %s prints it."""
    return value if isinstance(value, str) else f"%!s({go_kind(value)}={go_text(value)})"


def go_kind(value: Any) -> str:
    """The type of a JSON value in Go."""
    kinds: dict[type, str] = {
        type(None): "<nil>",
        bool: "bool",
        int: "int64",
        float: "float64",
        str: "string",
        list: "[]interface {}",
    }
    return kinds.get(type(value), "map[string]interface {}")
