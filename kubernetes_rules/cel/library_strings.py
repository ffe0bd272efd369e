"""Functions over strings (cel-go ext/strings.go, version 2). Positions count characters, not bytes."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.cel.library_string_format import ESCAPES, format_values
from kubernetes_rules.cel.library_values import (
    check_length,
    function,
    method,
    string_units,
    traversed_string,
    traversed_value,
    type_name,
)
from kubernetes_rules.cel.types import DYN, INT, STRING, CelError, list_of

_WHITE_SPACE = "\t\n\v\f\r \u0085\u00a0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_UPPER = {lower: lower - 32 for lower in range(ord("a"), ord("z") + 1)}
_QUOTE_ESCAPES = str.maketrans(ESCAPES)


def char_at(text: str, index: int) -> str:
    """The character at a position, none at the end. Raises CelError outside."""
    _check_within(text, index)
    return text[index : index + 1]


def index_of(text: str, part: str, offset: int = 0) -> int:
    """Where a part first occurs from a position on, or -1. Raises CelError for a negative position."""
    if offset < 0:
        raise CelError(f"index out of range: {offset}")
    if not part:
        return min(offset, len(text))
    return text.find(part, offset)


def last_index_of(text: str, part: str) -> int:
    """Where a part last occurs, or -1."""
    return text.rfind(part)


def last_index_of_from(text: str, part: str, offset: int) -> int:
    """Where a part last occurs at or before a position, or -1. Raises CelError for a negative position."""
    if offset < 0:
        raise CelError(f"index out of range: {offset}")
    if not part:
        return min(offset, len(text))
    return -1 if offset >= len(text) else text.rfind(part, 0, offset + len(part))


def replace(text: str, old: str, new: str, count: int = -1) -> str:
    """The text with up to so many occurrences replaced; all if negative.

    Raises CelError past LARGEST_STRING.
    """
    found = text.count(old)
    times = found if count < 0 else min(found, count)
    check_length(len(text) + times * (len(new) - len(old)))
    return text.replace(old, new, count)


def split(text: str, separator: str, count: int = -1) -> tuple[str, ...]:
    """The parts between separators, at most so many if not negative; single characters without separator."""
    if count == 0:
        return ()
    if separator:
        return tuple(text.split(separator, count - 1 if count > 0 else -1))
    if 0 < count < len(text):
        return (*text[: count - 1], text[count - 1 :])
    return tuple(text)


def substring(text: str, start: int, end: int | None = None) -> str:
    """The characters from a position to before another. Raises CelError when one is outside."""
    if end is not None and start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    _check_within(text, start)
    if end is not None:
        _check_within(text, end)
    return text[start:end]


def join(parts: tuple[Any, ...], separator: str = "") -> str:
    """The parts in one string. Raises CelError when one is no string, and past LARGEST_STRING."""
    for part in parts:
        if not isinstance(part, str):
            raise CelError(f"join: invalid input of type {type_name(part)}")
    check_length(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


def _check_within(text: str, index: int) -> None:
    if not 0 <= index <= len(text):
        raise CelError(f"index out of range: {index}")


def _joined_cost(_: tuple[Any, ...], result: Any) -> int:
    return string_units(result, 2)


_once = traversed_string()
_twice = traversed_string(2)
_strings = list_of(STRING)

OVERLOADS = (
    method("charAt", (STRING, INT), STRING, char_at),
    method("indexOf", (STRING, STRING), INT, index_of, traversed_value),
    method("indexOf", (STRING, STRING, INT), INT, index_of, traversed_value),
    method("lastIndexOf", (STRING, STRING), INT, last_index_of, traversed_value),
    method("lastIndexOf", (STRING, STRING, INT), INT, last_index_of_from, traversed_value),
    method("lowerAscii", (STRING,), STRING, lambda text: text.translate(_LOWER), _once),
    method("replace", (STRING, STRING, STRING), STRING, replace, _twice),
    method("replace", (STRING, STRING, STRING, INT), STRING, replace, _twice),
    method("split", (STRING, STRING), _strings, split, _twice),
    method("split", (STRING, STRING, INT), _strings, split, _twice),
    method("substring", (STRING, INT), STRING, substring, _once),
    method("substring", (STRING, INT, INT), STRING, substring, _once),
    method("trim", (STRING,), STRING, lambda text: text.strip(_WHITE_SPACE), _once),
    method("upperAscii", (STRING,), STRING, lambda text: text.translate(_UPPER), _once),
    method("format", (STRING, list_of(DYN)), STRING, format_values, _once),
    function("strings.quote", (STRING,), STRING, lambda text: f'"{text.translate(_QUOTE_ESCAPES)}"', _once),
    method("join", (_strings,), STRING, join, _joined_cost),
    method("join", (_strings, STRING), STRING, join, _joined_cost),
)
