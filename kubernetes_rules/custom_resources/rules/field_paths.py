"""Paths to fields of a schema, as ``fieldPath`` of a rule and ``jsonPath`` of a selectable field contain them.

Source: apiextensions-apiserver, schema/cel/validation.go (ValidFieldPath).
"""

from __future__ import annotations

import re

from kubernetes_rules.custom_resources.schema import Schema

_TOKEN = re.compile(r"[.\[\]]|'(?:.*?[^\\])'|[^.\[\]']+[^.\[\]]*|'", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


def field_path(path: str, schema: Schema, *, brackets: bool = True) -> str | None:
    """The path in the form of error messages, None if the schema has no such field.

    ``brackets``: keys in brackets and quotes, ``.labels['a.b']``, are allowed too.
    """
    found = find_field(path, schema, brackets=brackets)
    return None if found is None else found[0]


def find_field(path: str, schema: Schema, *, brackets: bool = True) -> tuple[str, Schema] | None:
    """The path in the form of error messages and the schema of the field, None if there is no such field."""
    tokens = _TOKEN.findall(path)
    if "".join(tokens) != path:
        return None
    text, place, index = "", schema, 0
    while index < len(tokens):
        if tokens[index] == ".":
            name, index = (tokens[index + 1] if index + 1 < len(tokens) else None), index + 2
        elif tokens[index] == "[" and brackets:
            name, index = _quoted(tokens[index + 1 : index + 3]), index + 3
        else:
            return None
        if name is None:
            return None
        if place.properties:
            child = place.properties.get(name)
            text = f"{text}.{name}" if text else name
        else:
            child = place.values
            text = f"{text}[{name}]"
        if child is None:
            return None
        place = child
    return text, place


def _quoted(tokens: list[str]) -> str | None:
    """The key of ``'key']``, None for other tokens."""
    if len(tokens) < 2 or tokens[1] != "]" or len(tokens[0]) < 2 or not tokens[0].startswith("'"):
        return None
    if not tokens[0].endswith("'") or any(
        escape not in _ESCAPES for escape in _ESCAPE.findall(tokens[0][1:-1])
    ):
        return None
    return _ESCAPE.sub(lambda found: _ESCAPES[found[1]], tokens[0][1:-1])
