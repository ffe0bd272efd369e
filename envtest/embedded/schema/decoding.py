"""Checks an object against its type: wrong types are refused, unknown fields and nulls left out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from envtest.embedded.schema.types import FieldType
from kubernetes_rules.quantity import Quantity

_PLAIN: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


class DecodingError(ValueError):
    """A value does not fit its type; the text is what the API server answers with 400."""


@dataclass(slots=True)
class Decoder:
    """Decodes objects and collects the paths of ``unknown`` fields on the way."""

    unknown: list[str] = field(default_factory=list)

    def decode(self, value: Any, kind: FieldType, path: str = "", field: str = "") -> Any:
        """The value without unknown fields and nulls; raises DecodingError.

        ``path`` is where the value is in the object, ``field`` how Go's json names that place.
        """
        expected = _PLAIN.get(kind.shape)
        if expected is not None:
            # In Python a bool is an int, which it must not be here.
            if isinstance(value, bool) != (kind.shape == "boolean") or not isinstance(value, expected):
                raise _mismatch(value, kind, field)
            return value
        match kind.shape:
            case "struct":
                return self._struct(value, kind, path, field)
            case "list":
                return self._list(value, kind, path, field)
            case "map":
                return self._map(value, kind, path, field)
            case "quantity":
                return _quantity(value, kind, field)
            case "time":
                return _time(value, kind, field)
            case "intOrString" if isinstance(value, bool) or not isinstance(value, (int, str)):
                raise _mismatch(value, kind, field)
        return value

    def _struct(self, value: Any, kind: FieldType, path: str, field: str) -> Any:
        if kind.union:
            return _of_union(value, kind, field)
        if not isinstance(value, dict):
            raise _mismatch(value, kind, field)
        fields, result = kind.fields, {}
        for name, item in value.items():
            here = f"{path}.{name}" if path else name
            # Go names the struct that it decodes, and the path of fields that leads there.
            above = field.partition(".")[2]
            known_as = f"{kind.ref.rpartition('.')[2]}.{f'{above}.' if above else ''}{name}"
            known = fields.get(name)
            if known is None:
                self.unknown.append(here)
            # Go reads a null into a field as if the field were absent.
            elif item is not None:
                result[name] = self.decode(item, known, here, known_as)
        return result

    def _list(self, value: Any, kind: FieldType, path: str, field: str) -> Any:
        if not isinstance(value, list):
            raise _mismatch(value, kind, field)
        of = kind.of
        assert of is not None
        return [
            _empty(of) if item is None else self.decode(item, of, f"{path}[{index}]", field)
            for index, item in enumerate(value)
        ]

    def _map(self, value: Any, kind: FieldType, path: str, field: str) -> Any:
        if not isinstance(value, dict):
            raise _mismatch(value, kind, field)
        of = kind.of
        assert of is not None
        return {
            key: _empty(of) if item is None else self.decode(item, of, f"{path}.{key}", field)
            for key, item in value.items()
        }


def _of_union(value: Any, kind: FieldType, field: str) -> Any:
    """A schema, or what stands in its place; Go reads these without noticing unknown fields."""
    if kind.union == "boolean" and isinstance(value, bool):
        return value
    if isinstance(value, list) and kind.union == "strings":
        return Decoder().decode(value, FieldType("list", of=FieldType("string")), field=field)
    if isinstance(value, list) and kind.union == "list":
        return Decoder().decode(value, FieldType("list", of=replace(kind, union="")), field=field)
    return Decoder().decode(value, replace(kind, union=""), field=field)


def _empty(kind: FieldType) -> Any:
    """The value of a null in a list or a map: the zero of its type, as Go reads it."""
    empties: dict[str, Any] = {"struct": {}, "list": [], "map": {}, "boolean": False, "quantity": "0"}
    return empties.get(
        kind.shape, 0 if kind.shape in ("integer", "number") else "" if kind.shape != "any" else None
    )


def _quantity(value: Any, kind: FieldType, field: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise _mismatch(value, kind, field)
    try:
        # Quantities are stored in their canonical form: 1024Mi becomes 1Gi.
        return str(Quantity.parse(str(value)))
    except ValueError as error:
        rule = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        raise DecodingError(rule) from error


def _time(value: Any, kind: FieldType, field: str) -> str:
    if not isinstance(value, str):
        raise _mismatch(value, kind, field)
    try:
        datetime.fromisoformat(value)
    except ValueError as error:
        text = f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}"'
        raise DecodingError(text) from error
    return value


def _mismatch(value: Any, kind: FieldType, field: str) -> DecodingError:
    """The error in the words of Go's json. Of integers the width is unknown here; the widest is named."""
    words: dict[type, str] = {
        str: "string",
        bool: "bool",
        int: "number",
        float: f"number {value}",
        list: "array",
    }
    found = words.get(type(value), "object")
    return DecodingError(
        f"json: cannot unmarshal {found} into Go struct field {field} of type {_go_type(kind)}"
    )


def _go_type(kind: FieldType) -> str:
    match kind.shape:
        case "struct":
            return ".".join(kind.ref.split(".")[-2:])
        case "list" if kind.of is not None:
            return f"[]{_go_type(kind.of)}"
        case "map" if kind.of is not None:
            return f"map[string]{_go_type(kind.of)}"
    return {"integer": "int64", "boolean": "bool", "number": "float64"}.get(kind.shape, kind.shape)
