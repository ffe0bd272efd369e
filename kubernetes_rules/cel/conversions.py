"""Converts values between the types of CEL: ``int("1")`` (cel-go, common/types)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from kubernetes_rules.cel import types
from kubernetes_rules.cel.library_strings import shortest_double
from kubernetes_rules.cel.times import Duration, Timestamp, parse_duration, parse_timestamp, timestamp
from kubernetes_rules.cel.types import CelError, Type, Uint, function
from kubernetes_rules.cel.values import traversed_string

NAMES = frozenset(
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"]
)
"""The functions whose call on a constant is folded into a constant."""

# The texts that Go's strconv.ParseInt, ParseUint, ParseFloat and ParseBool accept.
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DIGITS = re.compile(r"[0-9]+")
_RUN = "[0-9](?:_?[0-9])*"
_DECIMAL = re.compile(rf"[+-]?(?:{_RUN}\.?(?:{_RUN})?|\.{_RUN})(?:[eE][+-]?{_RUN})?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_SPECIAL = re.compile(r"[+-]?(?:inf|infinity)|nan", re.IGNORECASE)
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def _same(value: Any) -> Any:
    return value


def _number(text: str, pattern: re.Pattern[str], kind: type[int], lowest: int, highest: int) -> int:
    if not pattern.fullmatch(text) or len(text) > 1000 or not lowest <= int(text) <= highest:
        raise CelError(f"type conversion error from 'string' to '{'uint' if kind is Uint else 'int'}'")
    return kind(int(text))


def _string_to_int(text: str) -> int:
    return _number(text, _INTEGER, int, -(2**63), 2**63 - 1)


def _string_to_uint(text: str) -> int:
    return _number(text, _DIGITS, Uint, 0, 2**64 - 1)


def _string_to_double(text: str) -> float:
    if _SPECIAL.fullmatch(text):
        return float(text)
    try:
        if _HEXADECIMAL.fullmatch(text):
            return float.fromhex(text)
        number = float(text.replace("_", "")) if _DECIMAL.fullmatch(text) else math.inf
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise CelError(f"{text[:64]!r} is no double")
    return number


def _string_to_bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise CelError(f"{text[:64]!r} is no bool")


def _double_to_int(number: float) -> int:
    # cel-go refuses -2^63 as well, although an int64 could hold it.
    if not -(2.0**63) < number < 2.0**63:
        raise CelError("integer overflow")
    return int(number)


def _double_to_uint(number: float) -> int:
    if not 0 <= number < 2.0**64:
        raise CelError("unsigned integer overflow")
    return Uint(int(number))


def _int_to_uint(number: int) -> int:
    if number < 0:
        raise CelError("unsigned integer overflow")
    return Uint(number)


def _uint_to_int(number: int) -> int:
    if number >= 2**63:
        raise CelError("integer overflow")
    return int(number)


def _bytes_to_string(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise CelError("invalid UTF-8 in bytes, cannot convert to string") from error


def _int_to_timestamp(seconds: int) -> Timestamp:
    return timestamp(seconds * 1_000_000_000)


def _duration_to_int(value: Duration) -> int:
    return value.nanoseconds


def _timestamp_to_int(value: Timestamp) -> int:
    return value.nanoseconds // 1_000_000_000


_CONVERSIONS: tuple[tuple[str, Type, Type, Callable[[Any], Any]], ...] = (
    ("bool", types.BOOL, types.BOOL, _same),
    ("bool", types.STRING, types.BOOL, _string_to_bool),
    ("bytes", types.BYTES, types.BYTES, _same),
    ("bytes", types.STRING, types.BYTES, str.encode),
    ("double", types.DOUBLE, types.DOUBLE, _same),
    ("double", types.INT, types.DOUBLE, float),
    ("double", types.STRING, types.DOUBLE, _string_to_double),
    ("double", types.UINT, types.DOUBLE, float),
    ("duration", types.DURATION, types.DURATION, _same),
    ("duration", types.STRING, types.DURATION, parse_duration),
    ("int", types.INT, types.INT, _same),
    ("int", types.DOUBLE, types.INT, _double_to_int),
    ("int", types.DURATION, types.INT, _duration_to_int),
    ("int", types.STRING, types.INT, _string_to_int),
    ("int", types.TIMESTAMP, types.INT, _timestamp_to_int),
    ("int", types.UINT, types.INT, _uint_to_int),
    ("string", types.STRING, types.STRING, _same),
    ("string", types.BOOL, types.STRING, lambda value: "true" if value else "false"),
    ("string", types.BYTES, types.STRING, _bytes_to_string),
    ("string", types.DOUBLE, types.STRING, shortest_double),
    ("string", types.DURATION, types.STRING, str),
    ("string", types.INT, types.STRING, str),
    ("string", types.TIMESTAMP, types.STRING, str),
    ("string", types.UINT, types.STRING, lambda value: str(int(value))),
    ("timestamp", types.TIMESTAMP, types.TIMESTAMP, _same),
    ("timestamp", types.INT, types.TIMESTAMP, _int_to_timestamp),
    ("timestamp", types.STRING, types.TIMESTAMP, parse_timestamp),
    ("uint", types.UINT, types.UINT, _same),
    ("uint", types.DOUBLE, types.UINT, _double_to_uint),
    ("uint", types.INT, types.UINT, _int_to_uint),
    ("uint", types.STRING, types.UINT, _string_to_uint),
)
_TRAVERSED = ((types.STRING, types.BYTES), (types.BYTES, types.STRING))

OVERLOADS = tuple(
    function(name, (given,), result, call, traversed_string() if (given, result) in _TRAVERSED else None)
    for name, given, result, call in _CONVERSIONS
)
