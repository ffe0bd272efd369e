"""The JSON schema of values, made from their types."""

from __future__ import annotations

import dataclasses
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from tools.chart.described import Between, Object, OrEmpty, Schema, Text, Toggles

_PLAIN: tuple[tuple[Any, str], ...] = (
    (str, "string"),
    (int, "integer"),
    (bool, "boolean"),
    (Object, "object"),
)


def schema_of(kind: Any) -> Object:
    """The schema of a type: dataclasses are mappings with these fields and no others."""
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


def meaning_of(kind: Any) -> str:
    """The sentence beside a type, empty where there is none."""
    return next((part for part in get_args(kind)[1:] if isinstance(part, str)), "")


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
    if any(isinstance(part, OrEmpty) for part in said):
        schema["pattern"] = f"^$|{schema['pattern']}"
    return schema
