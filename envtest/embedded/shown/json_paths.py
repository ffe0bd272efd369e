"""JSONPath as printer columns have it: fields, indices, slices, wildcards and filters.

Go: k8s.io/client-go/util/jsonpath, with missing keys allowed.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

_STEP = re.compile(
    r"""\.\.(?P<deep>)
    | \.?\[\s*'(?P<quoted>[^']*)'\s*\]
    | \.?\[\s*"(?P<double>[^"]*)"\s*\]
    | \.?\[\s*\?\((?P<filter>.*?)\)\s*\]
    | \.?\[(?P<slice>[^\]]*)\]
    | \.?(?P<field>(?:\\.|[^.\[\]\\])+)
    | \.(?P<self>$)""",
    re.VERBOSE,
)
_FILTER = re.compile(r"\s*(?P<left>.+?)\s*(?:(?P<operator>==|!=|<=|>=|<|>)\s*(?P<right>.+?)\s*)?")
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class JsonPathError(ValueError):
    """The path cannot be read, or does not fit the object."""


def found_at(item: Any, path: str) -> list[Any]:
    """The values at a path that begins with a dot; none where a key is missing. Raises JsonPathError."""
    values = [item]
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None or match.end() == at:
            raise JsonPathError(path)
        values = [found for value in values for found in _step(value, match)]
        at = match.end()
    return values


def _step(value: Any, match: re.Match[str]) -> Iterator[Any]:
    if match["deep"] is not None:
        yield from _below(value)
    elif match["filter"] is not None:
        yield from (one for one in _entries(value) if _holds(one, match["filter"]))
    elif match["slice"] is not None:
        yield from _sliced(value, match["slice"].strip())
    elif match["self"] is not None:
        yield value
    else:
        name = match["quoted"] if match["quoted"] is not None else match["double"]
        name = re.sub(r"\\(.)", r"\1", match["field"]) if name is None else name
        if name == "*":
            yield from _entries(value)
        elif isinstance(value, dict) and name in value:
            yield value[name]


def _entries(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _below(value: Any) -> Iterator[Any]:
    yield value
    for one in _entries(value):
        yield from _below(one)


def _sliced(value: Any, text: str) -> list[Any]:
    if text == "*":
        return _entries(value)
    if value is None:
        return []
    if not isinstance(value, list):
        raise JsonPathError("an index of something else than a list")
    found: list[Any] = []
    for part in text.split(","):
        try:
            numbers = [int(one) if one.strip() else None for one in part.split(":")]
        except ValueError as error:
            raise JsonPathError(text) from error
        if len(numbers) > 1:
            found += value[slice(*numbers)]
            continue
        index = numbers[0] or 0
        if not -len(value) <= index < len(value):
            raise JsonPathError("an index behind the end of the list")
        found.append(value[index])
    return found


def _holds(entry: Any, text: str) -> bool:
    """Whether an entry passes a filter such as ``@.type=="Ready"``."""
    match = _FILTER.fullmatch(text)
    if match is None:
        raise JsonPathError(text)
    left = _operand(entry, match["left"])
    if match["operator"] is None:
        return bool(left)
    right = _operand(entry, match["right"])
    if not left or not right:
        return False
    try:
        return _COMPARISONS[match["operator"]](left[0], right[0])
    except TypeError as error:
        raise JsonPathError(text) from error


def _operand(entry: Any, text: str) -> list[Any]:
    if text.startswith("@"):
        return found_at(entry, text[1:])
    if text[:1] in "'\"" and text[-1:] == text[:1]:
        return [text[1:-1]]
    try:
        return [json.loads(text)]
    except ValueError as error:
        raise JsonPathError(text) from error
