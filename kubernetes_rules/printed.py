"""Values as Go prints them, for the texts of errors: strings, numbers, JSON."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

ESCAPES = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    "\\": r"\\",
    '"': r"\"",
}
"""The characters that have an escape of their own between quotes."""
_JSON_ESCAPES = str.maketrans({text: f"\\u{ord(text):04x}" for text in "<>&\u2028\u2029"})
"""The characters that encoding/json escapes because of HTML."""
_PLAIN_POWERS = range(-4, 6)
"""fmt prints a number with another power of ten with an exponent."""
_JSON_PLAIN_POWERS = range(-6, 21)
"""The same for encoding/json."""


def quoted(text: str) -> str:
    """A text between double quotes, as written by Go's strconv.Quote."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in ESCAPES:
        return ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def number(value: float) -> str:
    """A number or a bool as by Go's ``%v``; Python's int is Go's int64, float is float64."""
    return _number(value, _PLAIN_POWERS, 2)


def _number(value: float, plain_powers: range, exponent_digits: int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    decimal = Decimal(repr(value)).normalize()
    power = decimal.adjusted()
    if not decimal or power in plain_powers:
        return f"{decimal:f}"
    sign = "-" if power < 0 else "+"
    return f"{decimal.scaleb(-power):f}e{sign}{abs(power):0{exponent_digits}d}"


def json_text(value: Any) -> str:
    """A value as by Go's json.Marshal, with the keys in their order here."""
    if isinstance(value, dict):
        return f"{{{','.join(f'{json_text(key)}:{json_text(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(json_text, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).translate(_JSON_ESCAPES)
    if value is None:
        return "null"
    return _number(value, _JSON_PLAIN_POWERS, 1)


def with_sorted_keys(value: Any) -> Any:
    """The value with sorted keys in all maps, as json.Marshal writes Go's maps."""
    if isinstance(value, dict):
        return {key: with_sorted_keys(value[key]) for key in sorted(value)}
    return [with_sorted_keys(entry) for entry in value] if isinstance(value, list) else value


def shown(value: Any) -> str:
    """A bad value in an error, as by apimachinery's field.Error."""
    if isinstance(value, str):
        return quoted(value)
    return number(value) if isinstance(value, int | float) else json_text(value)


_TYPES = {
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    list: "[]interface {}",
    dict: "map[string]interface {}",
}


def plain(value: Any) -> str:
    """A JSON value as by Go's ``%v``."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{plain(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(plain, value))}]"
    if value is None:
        return "<nil>"
    return value if isinstance(value, str) else number(value)


def type_name(value: Any) -> str:
    """The type of a JSON value as by Go's ``%T``."""
    return _TYPES.get(type(value), "<nil>")
