"""Descriptions of the chart's values beside their types, and the JSON schema that follows from both."""

from __future__ import annotations

import dataclasses
import types
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

Object = dict[str, Any]
"""A Kubernetes object, or a part of one, that goes into the manifests as it is; the API server judges it."""
_PLAIN: tuple[tuple[Any, str], ...] = (
    (str, "string"),
    (int, "integer"),
    (bool, "boolean"),
    (Object, "object"),
)


@dataclass(frozen=True, slots=True)
class Text:
    """The pattern of a text: a regular expression of ECMA 262, as JSON schema takes it."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Between:
    """The bounds of a whole number; None for no upper bound."""

    least: int
    most: int | None = None


@dataclass(frozen=True, slots=True)
class OrEmpty:
    """An empty text is valid as well, and means that the value is not set."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The JSON schema of a value that is stricter than its type."""

    given: Object


@dataclass(frozen=True, slots=True)
class Toggles:
    """A mapping with these keys only, each true or false."""

    names: tuple[str, ...]


def quantity() -> Schema:
    """An amount as Kubernetes writes it: 64Mi, 100m, or a number."""
    return Schema({"type": ["string", "number"], "pattern": "^[0-9.]+([eE][0-9]+|m|k|[KMGTPE]i?)?$"})


def schema_of(kind: Any) -> Object:
    """The schema of a type; a dataclass is a mapping with its fields only."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _annotated(parts[0], parts[1:])
    if word := next((word for plain, word in _PLAIN if plain == kind), ""):
        return {"type": word}
    if origin is Literal:
        return {"enum": [*parts]}
    if origin is list:
        return {"type": "array", "items": schema_of(parts[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(parts[1])}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(part) for part in parts]}
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        fields = {field.name: schema_of(hints[field.name]) for field in dataclasses.fields(kind)}
        return {"type": "object", "additionalProperties": False, "properties": fields}
    raise TypeError(f"no schema for a value of the type {kind}")


def _annotated(kind: Any, said: tuple[Any, ...]) -> Object:
    schema = schema_of(kind)
    for part in said:
        match part:
            case str():
                schema = {"description": part, **schema}
            case Text():
                schema["pattern"] = part.pattern
            case Between():
                schema["minimum"] = part.least
                schema |= {} if part.most is None else {"maximum": part.most}
            case Schema():
                schema = dict(part.given)
            case Toggles():
                each = {name: {"type": "boolean"} for name in part.names}
                schema = {"type": "object", "additionalProperties": False, "properties": each}
    # At the end, when the pattern is known in whatever order the parts are written.
    if any(isinstance(part, OrEmpty) for part in said):
        schema["pattern"] = f"^$|{schema['pattern']}"
    return schema


def meaning_of(kind: Any) -> str:
    """The sentence beside a type, empty if there is none."""
    return next((part for part in get_args(kind)[1:] if isinstance(part, str)), "")
