"""Reads a body, and checks an object against its type: wrong types are refused, unknown fields left out.

Objects become as Go's json writes them: it writes some fields that nobody has set, such as an empty
``status``, and does not write others that are set to zero, such as ``hostNetwork: false``. What is no Unicode
becomes U+FFFD or a question mark: bytes that are no UTF-8, and halves of surrogate pairs.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import yaml

from envtest.embedded.schema.types import FieldType, Struct, struct_of, unset_value, zero_of
from kubernetes_rules.quantity import Quantity

Object = dict[str, Any]
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
Place = tuple["Place | None", str | int]
"""Where a value is: the place of what holds it, and its key there."""

_TIMES = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.][0-9]+)?(?:Z|[+-][0-9:]{5})")
_QUANTITY_RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class BodyError(ValueError):
    """The body cannot be read; the text is a part of what the API server answers with 400."""


class DecodingError(ValueError):
    """A value does not fit its type; the text is what the API server answers with 400."""


@dataclass(slots=True)
class Decoder:
    """Decodes objects, and collects on the way the ``problems`` that only strict decoding refuses.

    A decoder that ``completes`` makes them as Go's json writes them.
    """

    completes: bool = True
    problems: list[str] = field(default_factory=list)

    def decode(self, value: Any, kind: FieldType, place: Place | None = None) -> Any:
        """The value without unknown fields and nulls; raises DecodingError. ``place`` is where it is."""
        shape = kind.shape
        if shape == "struct":
            return self._struct(value, kind, place)
        if shape == "list":
            return self._list(value, kind, place)
        if shape == "map":
            return self._map(value, kind, place)
        if shape == "quantity":
            return _quantity(value)
        fits = _FITS.get(shape)
        if fits is not None:
            if fits(value):
                return value
        elif isinstance(value, str):
            return _read(value, shape)
        raise _mismatch(value, kind, place)

    def _struct(self, value: Any, kind: FieldType, place: Place | None) -> Any:
        if not isinstance(value, dict):
            raise _mismatch(value, kind, place)
        struct = struct_of(kind.ref)
        fields = struct.fields
        result: Object = {}
        for name, item in value.items():
            known = fields.get(name)
            if known is None:
                self.problems.append(f'unknown field "{_path((place, name))}"')
            # Most fields are texts, for which the general way is long.
            elif item and known.shape == "string" and type(item) is str:
                result[name] = item
            # Go reads a null into a field as if the field were absent.
            elif item is not None:
                found = self.decode(item, known, (place, name))
                if found or not (self.completes and known.unset == "-"):
                    result[name] = found
        if self.completes and struct.written:
            _complete(result, struct)
        return result

    def _list(self, value: Any, kind: FieldType, place: Place | None) -> Any:
        of = kind.of
        if not isinstance(value, list) or of is None:
            raise _mismatch(value, kind, place)
        return [
            zero_of(of) if item is None else self.decode(item, of, (place, index))
            for index, item in enumerate(value)
        ]

    def _map(self, value: Any, kind: FieldType, place: Place | None) -> Any:
        of = kind.of
        if not isinstance(value, dict) or of is None:
            raise _mismatch(value, kind, place)
        return {
            key: zero_of(of) if item is None else self.decode(item, of, (place, key))
            for key, item in value.items()
        }


def _complete(result: Object, struct: Struct) -> None:
    """Put in the fields that Go's json always writes."""
    for name in struct.written:
        kind = struct.fields[name]
        # Go knows no empty lists and maps once it has read an object from its storage.
        if name not in result or (not result[name] and kind.shape in ("list", "map")):
            result[name] = unset_value(kind)


def _fits_int32(value: Any) -> bool:
    # In Python a bool is an int, which it must not be here.
    return type(value) is int and -(2**31) <= value < 2**31


_FITS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "int32": _fits_int32,
    "int64": lambda value: type(value) is int and -(2**63) <= value < 2**63,
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "intOrString": lambda value: isinstance(value, str) or _fits_int32(value),
    "any": lambda _: True,
}
"""Whether a value is of a shape that is stored as it is written."""


@lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    return str(Quantity.parse(text))


def _quantity(value: Any) -> str:
    try:
        # Quantities are stored in their canonical form: 1024Mi becomes 1Gi.
        return _canonical("" if isinstance(value, (bool, list, dict)) else str(value))
    except ValueError as error:
        raise DecodingError(_QUANTITY_RULE) from error


def _read(text: str, shape: str) -> str:
    """Bytes or a time as they are stored: in base64, in UTC; raises DecodingError."""
    try:
        if shape == "bytes":
            return base64.b64encode(base64.b64decode(text, validate=True)).decode()
        if not _TIMES.fullmatch(text) or (shape == "microTime" and "." not in text):
            raise ValueError(f"parsing time {json.dumps(text)}: it is none of RFC 3339")
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except ValueError as error:
        raise DecodingError(str(error)) from error
    fraction = f".{moment.microsecond:06}Z" if shape == "microTime" else "Z"
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}"


def _path(place: Place | None) -> str:
    """The place as strict decoding names it: ``spec.containers[0].name``."""
    text = ""
    while place is not None:
        place, key = place
        text = (f"[{key}]" if isinstance(key, int) else f".{key}") + text
    return text.removeprefix(".")


def _mismatch(value: Any, kind: FieldType, place: Place | None) -> DecodingError:
    words: dict[type, str] = {str: "string", bool: "bool", int: "number", float: "number", list: "array"}
    found = words.get(type(value), "object")
    return DecodingError(f"json: cannot unmarshal {found} into field {_path(place)} of type {kind.shape}")


def read_json(body: bytes) -> Any:
    """The value of a JSON text; raises BodyError."""
    try:
        value = _DECODER.decode(body.decode(errors="replace"))
    except (ValueError, RecursionError) as error:
        raise BodyError(f"invalid JSON: {error}") from error
    if _ESCAPED_SURROGATE.search(body):
        return json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    return value


def read_yaml(body: bytes) -> Any:
    """The value of the first document of a YAML text; raises BodyError."""
    # Most clients send JSON, which is YAML too and read far faster as JSON.
    if body[:1] == b"{":
        return read_json(body)
    try:
        documents = yaml.load_all(body.decode(errors="replace"), Loader=_Loader)
        return next(iter(documents), {})
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BodyError(f"yaml: {error}") from error


def object_of(value: Any) -> dict[str, Any]:
    """The value of a body where an object is expected, which null is too; raises BodyError."""
    if isinstance(value, dict | None):
        return value or {}
    raise BodyError(f"the body is a {type(value).__name__}, no object")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number that can be stored")
    return number


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


class _Loader(yaml.CSafeLoader):
    """Takes times as texts, as JSON has them."""


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_yaml_str)  # type: ignore[type-var] # has no types
