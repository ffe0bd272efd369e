"""Reads the JSON and the YAML of a body, and notes keys that come more than once in their map.

What is no Unicode becomes U+FFFD or a question mark: bytes that are no UTF-8, and halves of surrogate pairs.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import yaml

_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class BodyError(ValueError):
    """The body cannot be read; the text is a part of what the API server answers with 400."""


class Repeated(dict[str, Any]):
    """An object some of whose keys come more than once; ``pairs`` are all entries in their order."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


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


def repeated_fields(value: Any, path: str = "") -> list[str]:
    """A text for each key of the value that comes twice in its map."""
    if isinstance(value, list):
        return [text for index, one in enumerate(value) for text in repeated_fields(one, f"{path}[{index}]")]
    if not isinstance(value, dict):
        return []
    names = [name for name, _ in value.pairs] if isinstance(value, Repeated) else []
    found = [f'duplicate field "{path}{name}"' for at, name in enumerate(names) if name in names[:at]]
    return found + [text for key, one in value.items() for text in repeated_fields(one, f"{path}{key}.")]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else Repeated(pairs)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number that can be stored")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_finite, parse_constant=_finite)


class _Loader(yaml.CSafeLoader):
    """Takes times as texts, as JSON has them."""


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_yaml_str)  # type: ignore[type-var] # has no types
