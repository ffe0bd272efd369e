"""Paths such as ``.spec.color`` and ``.spec['a.b']`` that point into a schema (cel.ValidFieldPath)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kubernetes_rules.custom_resources.schema import Schema

_TOKEN = re.compile(r"'(?:[^']|(?<=\\)')*?(?<!\\)'|[.\[\]]|[^.\[\]']+[^.\[\]]*|'.*", re.DOTALL)
_ESCAPES = {
    "\\": "\\",
    "'": "'",
    '"': '"',
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
}


class PathInvalid(Exception):
    """The path is not one, or points to nothing; the text says why."""


def resolved(path: str, schema: Schema, *, allows_brackets: bool = True) -> tuple[tuple[str, ...], Schema]:
    """The keys of a path and the schema that it points to. Raises PathInvalid."""
    keys: list[str] = []
    steps = iter(_TOKEN.findall(path))
    for step in steps:
        if step == "[":
            if not allows_brackets:
                raise PathInvalid("array notation is not allowed")
            key = _unquoted(_next(steps))
            keys.append(key)
            schema = _below(schema, key)
            end = _next(steps)
            if end != "]":
                raise PathInvalid(f"expected ] but got {end}")
        elif step == ".":
            key = _next(steps)
            keys.append(key)
            schema = _below(schema, key)
        else:
            raise PathInvalid(f"expected [ or . but got: {step}")
    return tuple(keys), schema


def _next(steps: Iterator[str]) -> str:
    step = next(steps, None)
    if step is None:
        raise PathInvalid("unexpected end of JSON path")
    return step


def _unquoted(token: str) -> str:
    if len(token) < 2 or not token.startswith("'") or not token.endswith("'"):
        raise PathInvalid(f"expected single quoted string but got {token}")

    def unescaped(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            raise PathInvalid("invalid string literal: invalid syntax")
        return _ESCAPES[match[1]]

    return re.sub(r"\\(.?)", unescaped, token[1:-1])


def _below(schema: Schema, key: str) -> Schema:
    found = schema.properties.get(key) if schema.properties else schema.values
    if found is None and not schema.properties and schema.knows_keys:
        return Schema()  # anything, below additionalProperties: true
    if found is None:
        raise PathInvalid("does not refer to a valid field")
    return found
