"""The table of the fields of the node configuration, from the schemas that its readers declare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from driver.devices.sharing import MOST_MPS_CLIENTS
from driver.health.health_rules import SCHEMA as HEALTH
from driver.policy.config import pool_schema, rule_schema
from tools.docs.lookup import marked
from tools.docs.lookup.marked import code, table

Schema = dict[str, Any]

WORDS: dict[str, tuple[str, str]] = {
    path: (default, meaning.replace("MOST_MPS_CLIENTS", str(MOST_MPS_CLIENTS)))
    for path, (default, meaning) in marked.WORDS["node_fields"].items()
}
"""The default and the meaning of each field."""


def schema() -> Schema:
    """The schema of the whole file."""
    rules = {"type": "array", "items": rule_schema()}
    pools = {"type": "array", "items": pool_schema()}
    return {
        "properties": {
            "version": {"enum": ["v1"]},
            "rules": rules,
            "pools": pools,
            "health": HEALTH,
        }
    }


def fields() -> dict[str, list[Schema]]:
    """All fields by their paths, with the schemas of their values."""
    # The rules of pools have the same fields as the rules at the top.
    found: dict[str, list[Schema]] = {}
    for path, one in _walk(schema(), ""):
        found.setdefault(path, []).append(one)
    return {path: said for path, said in found.items() if not path.startswith("pools[].rules[]")}


def field_table() -> str:
    """All fields as a table; ValueError for a field without a meaning, or a meaning without a field."""
    found = {path: said for path, said in fields().items() if path in WORDS or not _holds_others(path)}
    if set(found) != set(WORDS):
        raise ValueError(
            f"fields and words in tools/docs/lookup/words.yaml differ: {sorted(set(found) ^ set(WORDS))}"
        )
    rows = [(code(path), _types(found[path]), default, meaning) for path, (default, meaning) in WORDS.items()]
    return table(("field", "takes", "default", "means"), rows)


def _holds_others(path: str) -> bool:
    return any(other.startswith((f"{path}.", f"{path}[")) for other in fields())


def _walk(one: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Every field below a schema, also in its choices, with its path.

    ``shared`` is one mapping or a list of them: the fields of its items have the path of ``shared`` itself.
    """
    for name, below in one.get("properties", {}).items():
        inner = f"{path}.{name}" if path else name
        yield inner, below
        yield from _walk(below, inner)
    for choice in one.get("anyOf", ()):
        yield from _walk(choice, path)
    items = one.get("items", {})
    if "properties" in items:
        is_choice = path.endswith(".shared")
        yield from _walk(items, path if is_choice else f"{path}[]")


def _types(said: list[Schema]) -> str:
    return "; ".join(dict.fromkeys(word for one in said for word in _words(one)))


def _words(one: Schema) -> Iterator[str]:
    for choice in one.get("anyOf", ()):
        if "required" not in choice or "type" in choice:
            yield from _words(choice)
    if "enum" in one:
        yield ", ".join(
            code("off" if word is False else str(word))
            for word in dict.fromkeys(one["enum"])
            if word is not False or "off" not in one["enum"]
        )
    kinds = one.get("type", [])
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        yield _WRITTEN[kind] + _limits(one, kind)


_WRITTEN = {
    "string": "text",
    "integer": "whole number",
    "boolean": "true or false",
    "array": "list",
    "object": "mapping",
}


def _limits(one: Schema, kind: str) -> str:
    if kind == "integer" and "minimum" in one:
        return (
            f" from {one['minimum']} to {one['maximum']}" if "maximum" in one else f" from {one['minimum']}"
        )
    if kind == "string" and "maxLength" in one:
        return f" of at most {one['maxLength']} characters"
    if kind == "array" and "enum" in one.get("items", {}):
        return f" of {', '.join(map(code, one['items']['enum']))}"
    values = one.get("additionalProperties")
    if kind == "object" and isinstance(values, dict) and "enum" in values:
        return f" to {', '.join(map(code, values['enum']))}"
    return ""
