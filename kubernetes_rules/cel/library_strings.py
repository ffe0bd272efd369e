"""Functions on strings (cel-go ext/strings.go, version 2). Positions count characters, not bytes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from kubernetes_rules.cel import values
from kubernetes_rules.cel.types import DYN, INT, STRING, CelError, Type, Uint, function, list_of, method
from kubernetes_rules.printed import ESCAPES, quoted

_DEFAULT_PRECISION = 6
_LARGEST_PRECISION = 1_000_000
"""Kubernetes has no limit here; a selector that passes this one would fill memory."""
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SPECIAL_TEXTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_CLAUSE = re.compile(r"%(?:(?P<percent>%)|(?P<dot>\.(?P<precision>[0-9]*))?(?P<verb>.)?)", re.DOTALL)
_TIME_TYPES = ("google.protobuf.Timestamp", "google.protobuf.Duration")
TYPES_OF_VERBS = {
    "s": frozenset(
        {"list", "map", "int", "uint", "double", "bool", "string", "bytes", "type", "null_type", *_TIME_TYPES}
    ),
    "d": frozenset({"int", "uint"}),
    "f": frozenset({"double", "string"}),
    "e": frozenset({"double", "string"}),
    "b": frozenset({"int", "uint", "bool"}),
    "x": frozenset({"int", "uint", "string", "bytes"}),
    "X": frozenset({"int", "uint", "string", "bytes"}),
    "o": frozenset({"int", "uint"}),
}
"""The types that the arguments of each verb may have, by name; the check before running uses them too."""

_WHITE_SPACE = "\t\n\v\f\r \u0085\u00a0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_UPPER = {lower: lower - 32 for lower in range(ord("a"), ord("z") + 1)}
_QUOTE_ESCAPES = str.maketrans(ESCAPES)


class Clause(NamedTuple):
    """One ``%`` of a format text: the text before it, its verb, and its precision if given."""

    before: str
    verb: str
    precision: int | None


def clauses(text: str, argument_count: int) -> Iterator[Clause]:
    """The clauses of a format text, and the text after them as one without a verb.

    Raises CelError for an invalid clause, and for one without an argument.
    """
    before, position, index = "", 0, 0
    while match := _CLAUSE.search(text, position):
        before += text[position : match.start()]
        position = match.end()
        if match["percent"]:
            before += "%"
            continue
        if index >= argument_count:
            raise CelError(f"index {index} out of range")
        yield Clause(before, *_verb_of(match))
        before, index = "", index + 1
    yield Clause(before + text[position:], "", None)


def _verb_of(match: re.Match[str]) -> tuple[str, int | None]:
    verb = match["verb"]
    if verb is None:
        raise CelError(
            "could not find end of precision specifier" if match["dot"] else "unexpected end of string"
        )
    precision = None
    if match["dot"]:
        digits = match["precision"].lstrip("0")
        if not match["precision"]:
            raise CelError("error while converting precision to integer")
        if len(digits) > 7 or int(digits or "0") > _LARGEST_PRECISION:
            raise CelError(f"a precision of {match['precision'][:32]} is too large")
        precision = int(digits or "0")
    if verb not in TYPES_OF_VERBS:
        raise CelError(f'unrecognized formatting clause "{verb}"')
    return verb, precision


def format_values(text: str, arguments: tuple[Any, ...]) -> str:
    """The text with its clauses replaced by the values.

    Raises CelError for an invalid clause or value, and as check_length does.
    """
    parts, length = [], 0
    for index, clause in enumerate(clauses(text, len(arguments))):
        parts.append(clause.before)
        if clause.verb:
            parts.append(_VERBS[clause.verb](arguments[index], clause))
            length += len(parts[-1])
            values.check_length(length)
    return "".join(parts)


def _string(value: Any, _: Clause) -> str:
    if isinstance(value, tuple | Mapping):
        return _literal(value)
    return _plain(value)


def _plain(value: Any) -> str:
    """A value other than a list or a map as a text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return shortest_double(value)
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise CelError("invalid UTF-8 in bytes, cannot convert to string") from error
    if isinstance(value, Type):
        return value.name
    if values.type_name(value) in TYPES_OF_VERBS["s"]:
        return str(value)
    raise CelError(
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, "
        f"durations, and timestamps, was given {values.type_name(value)}"
    )


def shortest_double(value: float) -> str:
    """A double with the fewest digits that identify it, as by Go's strconv.FormatFloat(v, 'g', -1, 64)."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    number = Decimal(repr(value)).normalize()
    power = number.adjusted()
    if -4 <= power < 6:
        return f"{number:f}"
    mantissa = f"{number.scaleb(-power):f}"
    return f"{mantissa}e{power:+03d}"


def _literal(value: Any) -> str:
    """A value within a list or map, as a CEL literal."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, Mapping):
        pairs = sorted(((_key(key), _literal(item)) for key, item in value.items()), key=lambda pair: pair[0])
        return f"{{{', '.join(f'{key}:{item}' for key, item in pairs)}}}"
    if isinstance(value, float):
        return f"{value:.6f}" if math.isfinite(value) else quoted(shortest_double(value))
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bytes):
        return f"b{quoted(_plain(value))}"
    name = values.type_name(value)
    if name not in TYPES_OF_VERBS["s"]:
        raise CelError(f"no formatting function for {name}")
    if name in _TIME_TYPES:
        return f"{name.rpartition('.')[2].lower()}({quoted(str(value))})"
    return _plain(value)


def _key(key: Any) -> str:
    if not isinstance(key, str | int):
        raise CelError(f"no formatting function for map key of type {values.type_name(key)}")
    return quoted(key) if isinstance(key, str) else _plain(key)


def _decimal(value: Any, _: Clause) -> str:
    return str(_integer(value, "decimal clause can only be used on integers"))


def _octal(value: Any, _: Clause) -> str:
    return f"{_integer(value, 'octal clause can only be used on integers'):o}"


def _binary(value: Any, _: Clause) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return f"{_integer(value, 'only integers and bools can be formatted as binary'):b}"


def _hexadecimal(value: Any, clause: Clause) -> str:
    if isinstance(value, str | bytes):
        text = (value.encode() if isinstance(value, str) else value).hex()
    else:
        text = f"{_integer(value, 'only integers, byte buffers, and strings can be formatted as hex'):x}"
    return text.upper() if clause.verb == "X" else text


def _integer(value: Any, complaint: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | Uint):
        raise CelError(f"{complaint}, was given {values.type_name(value)}")
    return int(value)


def _double(value: Any, name: str) -> float:
    if isinstance(value, str) and value in _SPECIAL_TEXTS:
        return _SPECIAL_TEXTS[value]
    if not isinstance(value, float):
        raise CelError(f"{name} clause can only be used on doubles, was given {values.type_name(value)}")
    return value


def _special(number: float) -> str:
    return "NaN" if math.isnan(number) else "∞" if number > 0 else "-∞"


def _fixed(value: Any, clause: Clause) -> str:
    number = _double(value, "fixed-point")
    if not math.isfinite(number):
        return _special(number)
    precision = _DEFAULT_PRECISION if clause.precision is None else clause.precision
    return f"{number or 0.0:,.{precision}f}"


def _scientific(value: Any, clause: Clause) -> str:
    """Always six places: as in Kubernetes, the precision is only the least width of the text."""
    number = _double(value, "scientific")
    if math.isfinite(number):
        mantissa, exponent = f"{number or 0.0:.{_DEFAULT_PRECISION}e}".split("e")
        text = f"{mantissa}\N{MULTIPLICATION SIGN}10{exponent.lstrip('+').translate(_SUPERSCRIPT)}"
    else:
        text = _special(number)
    return text.rjust(_DEFAULT_PRECISION if clause.precision is None else clause.precision)


_VERBS: Mapping[str, Callable[[Any, Clause], str]] = {
    "s": _string,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": _binary,
    "x": _hexadecimal,
    "X": _hexadecimal,
    "o": _octal,
}


def _char_at(text: str, index: int) -> str:
    """The character at a position, empty at the end. Raises CelError outside."""
    _check_within(text, index)
    return text[index : index + 1]


def index_of(text: str, part: str, offset: int = 0) -> int:
    """The first position of a part from an offset on, or -1. Raises CelError for a negative offset."""
    if offset < 0:
        raise CelError(f"index out of range: {offset}")
    if not part:
        return min(offset, len(text))
    return text.find(part, offset)


def _last_index_of(text: str, part: str) -> int:
    """The last position of a part, or -1."""
    return text.rfind(part)


def _last_index_of_from(text: str, part: str, offset: int) -> int:
    """The last position of a part up to an offset, or -1. Raises CelError for a negative offset."""
    if offset < 0:
        raise CelError(f"index out of range: {offset}")
    if not part:
        return min(offset, len(text))
    return -1 if offset >= len(text) else text.rfind(part, 0, offset + len(part))


def replace(text: str, old: str, new: str, count: int = -1) -> str:
    """The text with up to ``count`` occurrences replaced, all if negative; raises as check_length does."""
    found = text.count(old)
    times = found if count < 0 else min(found, count)
    values.check_length(len(text) + times * (len(new) - len(old)))
    return text.replace(old, new, count)


def split(text: str, separator: str, count: int = -1) -> tuple[str, ...]:
    """The parts between separators, at most ``count`` if not negative; single characters without one."""
    if count == 0:
        return ()
    if separator:
        return tuple(text.split(separator, count - 1 if count > 0 else -1))
    if 0 < count < len(text):
        return (*text[: count - 1], text[count - 1 :])
    return tuple(text)


def substring(text: str, start: int, end: int | None = None) -> str:
    """The characters from ``start`` to before ``end``. Raises CelError if one is outside."""
    if end is not None and start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    _check_within(text, start)
    if end is not None:
        _check_within(text, end)
    return text[start:end]


def join(parts: tuple[Any, ...], separator: str = "") -> str:
    """The parts in one string. Raises CelError if one is not a string, and as check_length does."""
    for part in parts:
        if not isinstance(part, str):
            raise CelError(f"join: invalid input of type {values.type_name(part)}")
    values.check_length(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


def _check_within(text: str, index: int) -> None:
    if not 0 <= index <= len(text):
        raise CelError(f"index out of range: {index}")


def _joined_cost(_: tuple[Any, ...], result: Any) -> int:
    return values.string_units(result, 2)


_once = values.traversed_string()
_twice = values.traversed_string(2)
_strings = list_of(STRING)

OVERLOADS = (
    method("charAt", (STRING, INT), STRING, _char_at),
    method("indexOf", (STRING, STRING), INT, index_of, values.traversed_value),
    method("indexOf", (STRING, STRING, INT), INT, index_of, values.traversed_value),
    method("lastIndexOf", (STRING, STRING), INT, _last_index_of, values.traversed_value),
    method("lastIndexOf", (STRING, STRING, INT), INT, _last_index_of_from, values.traversed_value),
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
