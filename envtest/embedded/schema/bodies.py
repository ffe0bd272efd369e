"""Reads the JSON and the YAML of a body as Go does, and refuses it in Go's words.

What is no Unicode becomes U+FFFD: bytes that are no UTF-8, and halves of surrogate pairs.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Self

import yaml

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_HEX = re.compile("[0-9a-fA-F]{0,4}")
_LITERALS = {"n": "null", "t": "true", "f": "false"}
_CLOSED = re.compile(r"\{[^][{}]*\}|\[[^][{}]*\]")
_WORDS = {
    "Expecting value": "looking for beginning of value",
    "Expecting property name enclosed in double quotes": "looking for beginning of object key string",
    "Illegal trailing comma before end of object": "looking for beginning of object key string",
    "Illegal trailing comma before end of array": "looking for beginning of value",
    "Expecting ':' delimiter": "after object key",
    "Expecting ',' delimiter": "after object key:value pair",
    "Extra data": "after top-level value",
    "Invalid control character at": "in string literal",
    "Invalid \\escape": "in string escape code",
    "Invalid \\uXXXX escape": "in \\u hexadecimal character escape",
}
"""What Python's json says of an unexpected character, and what Go's says."""
_YAML_PROBLEMS = "yaml: unmarshal errors:\n  "
_SHOWN_BYTES = 30
_ANY_OBJECT = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)
"""What Go reads the kind of an object into."""


class BodyError(ValueError):
    """The body cannot be read; the text is the rest of what the API server answers with 400.

    ``reason`` is the text without the beginning of the body.
    """

    def __init__(self, reason: str, body: bytes) -> None:
        super().__init__(f"{reason} ({_shown(body)})")
        self.reason = reason


class NumberTooLarge(ValueError):
    """A number of a body is larger than any float64; the text is what Go says of it."""


class Decimal(float):
    """A number that is no integer, with its ``text`` in the body."""

    text: str

    def __new__(cls, text: str) -> Self:
        """The number that the text says."""
        made = super().__new__(cls, text)
        made.text = text
        return made

    def __str__(self) -> str:
        return self.text

    def __getnewargs__(self) -> tuple[str]:  # type: ignore[override] # a copy is made from the text too
        return (self.text,)


class Repeated(dict[str, Any]):
    """An object some of whose keys come more than once; ``pairs`` are all entries in their order.

    For YAML it is the whole document, and ``problem`` names all keys in it that come more than once.
    """

    __slots__ = ("pairs", "problem")

    def __init__(self, pairs: list[tuple[str, Any]], problem: str = "") -> None:
        super().__init__(pairs)
        self.pairs = pairs
        self.problem = problem


def read_json(body: bytes) -> Any:
    """The value of a JSON text; raises BodyError."""
    return _json_value(body, _DECODER)


def _json_value(body: bytes, decoder: json.JSONDecoder) -> Any:
    text = body.decode(errors="replace")
    try:
        value = decoder.decode(text)
    except json.JSONDecodeError as error:
        raise BodyError(_in_go(error), body) from error
    except RecursionError as error:
        raise BodyError(f"invalid character {_quoted(text[0])} exceeded max depth", body) from error
    except ValueError as error:  # Python reads no integer of more than 4,300 digits
        raise BodyError("json: cannot unmarshal a number of so many digits", body) from error
    # The halves of pairs are escaped, so that almost no body has to be gone through.
    return _replaced(value) if _ESCAPED_SURROGATE.search(body) else value


def read_yaml(body: bytes) -> Any:
    """The value of the first document of a YAML text; raises BodyError."""
    # Most clients send JSON, which is YAML too and read far faster as JSON.
    if body[:1] == b"{":
        try:
            return _json_value(body, _UNIQUE_DECODER)
        except BodyError:
            pass
    try:
        loader = _Loader(body.decode(errors="replace"))
        has_document = loader.check_data()  # type: ignore[no-untyped-call] # has no types
        value = loader.get_data() if has_document else {}
        if loader.repeated and isinstance(value, dict):
            return Repeated(list(value.items()), _YAML_PROBLEMS + "\n  ".join(loader.repeated))
        return value
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise BodyError(f"yaml: line {line}: {error.problem}", body) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BodyError(f"yaml: {error}", body) from error


def object_of(value: Any, body: bytes) -> dict[str, Any]:
    """The value of ``body`` where an object is expected, which null is too; raises BodyError."""
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    found = {str: "string", list: "array", bool: "bool"}.get(type(value), "number")
    raise BodyError(f"json: cannot unmarshal {found} into Go value of type {_ANY_OBJECT}", body)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else Repeated(pairs)


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise json.JSONDecodeError("Repeated key", "", 0)
    return found


def _no_number(name: str) -> Any:
    raise json.JSONDecodeError("Expecting value", name, 0)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=Decimal, parse_constant=_no_number)
_UNIQUE_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_object, parse_float=Decimal, parse_constant=_no_number
)


def _in_go(error: json.JSONDecodeError) -> str:
    """The error in the words of Go's json, which names the character that it does not expect."""
    words = _WORDS.get(error.msg)
    escape = error.msg.startswith("Invalid \\")
    found = error.doc[error.pos + escape : error.pos + escape + 1]
    if not found or words is None:
        return "unexpected end of JSON input"
    if escape and words.startswith("in \\u"):
        digits = _HEX.match(error.doc, error.pos + escape + 1)
        found = error.doc[digits.end() : digits.end() + 1] if digits else found
    if literal := _LITERALS.get(found, "") if words.endswith("beginning of value") else "":
        return _in_literal(literal, error.doc[error.pos :])
    if words == "after object key:value pair" and _is_in_array(error.doc[: error.pos]):
        words = "after array element"
    return f"invalid character {_quoted(found)} {words}"


def _in_literal(literal: str, text: str) -> str:
    """The error of a word that begins as a literal does."""
    for expected, found in zip(literal, text, strict=False):
        if found != expected:
            return f"invalid character {_quoted(found)} in literal {literal} (expecting {_quoted(expected)})"
    return "unexpected end of JSON input"


def _is_in_array(before: str) -> bool:
    """Whether the last bracket that is open in a correct piece of JSON is that of an array."""
    brackets = _STRING.sub("", before)
    while brackets != (shorter := _CLOSED.sub("", brackets)):
        brackets = shorter
    return brackets.rfind("[") > brackets.rfind("{")


def _quoted(character: str) -> str:
    # Go looks at bytes, each of which it shows as a character.
    byte = chr(character.encode(errors="replace")[0])
    return {"'": "'\\''", '"': "'\"'"}.get(byte, repr(byte))


def _shown(body: bytes) -> str:
    """The beginning of the body, as text if it looks like an object."""
    if not body:
        return "<empty>"
    more = " ..." if len(body) > _SHOWN_BYTES else ""
    start = body[:_SHOWN_BYTES]
    return (start.decode(errors="replace") if body.startswith(b"{") else start.hex()) + more


def _replaced(value: Any) -> Any:
    """The value without halves of surrogate pairs, in keys too."""
    if isinstance(value, str):
        return _SURROGATE.sub(_REPLACEMENT, value)
    if isinstance(value, Repeated):
        return Repeated([(_replaced(key), _replaced(item)) for key, item in value.pairs], value.problem)
    if isinstance(value, dict):
        return {_replaced(key): _replaced(item) for key, item in value.items()}
    return [_replaced(item) for item in value] if isinstance(value, list) else value


class _Loader(yaml.SafeLoader):
    """Reads plain scalars as Kubernetes' YAML does: no dates, no numbers to the base of 60, and y is true."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - that of the library, which fills it

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.repeated: list[str] = []
        """The problem of keys that come more than once in their map."""


def _resolve(tag: str, pattern: str, first: str) -> None:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"(?:{pattern})$"), list(first))


_TRUE = ("y", "yes", "on", "true")
_resolve(
    "bool", "[yY]|[nN]|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|[tT]rue|TRUE|[fF]alse|FALSE", "yYnNoOtTfF"
)
_resolve("int", "[-+]?(?:0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO]?[0-7_]*|[1-9][0-9_]*)", "-+0123456789")
_resolve("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789")
_resolve("null", "~|null|Null|NULL|", "~nN")
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile("$"), [""])
_resolve("merge", "<<", "<")


def _yaml_bool(loader: _Loader, node: yaml.ScalarNode) -> bool:
    return loader.construct_scalar(node).lower() in _TRUE


def _yaml_int(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node).replace("_", "").lower()
    digits = text.lstrip("+-")
    # A leading zero means octal digits.
    number = int(digits, 8 if digits[:1] == "0" and digits[1:].isdigit() else 0)
    return -number if text.startswith("-") else number


def _yaml_float(loader: _Loader, node: yaml.ScalarNode) -> float | int:
    number = float(loader.construct_scalar(node))
    return int(number) if number.is_integer() else number


def _yaml_map(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    own = {id(key) for key, _ in node.value}
    loader.flatten_mapping(node)
    names: set[str] = set()
    found: dict[str, Any] = {}
    for key_node, item_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, (str, int, float)):
            raise yaml.constructor.ConstructorError(None, None, "unsupported map key", key_node.start_mark)
        name = str(key).lower() if isinstance(key, bool) else str(key)
        if name in names:
            line = key_node.start_mark.line + 1
            loader.repeated.append(f"line {line}: key {json.dumps(name)} already set in map")
        # What is merged into a map may be there as well.
        if id(key_node) in own:
            names.add(name)
        found[name] = loader.construct_object(item_node, deep=True)
    return found


def _yaml_binary(loader: _Loader, node: yaml.ScalarNode) -> str:
    return loader.construct_yaml_binary(node).decode(errors="replace")


_CONSTRUCT: dict[str, Any] = {
    "bool": _yaml_bool,
    "int": _yaml_int,
    "float": _yaml_float,
    "map": _yaml_map,
    "timestamp": yaml.SafeLoader.construct_yaml_str,
    "binary": _yaml_binary,
    "merge": yaml.SafeLoader.construct_yaml_str,
}
for _name, _construct in _CONSTRUCT.items():
    _Loader.add_constructor(f"tag:yaml.org,2002:{_name}", _construct)


def warned(problems: list[str]) -> list[str]:
    """The problems of strict decoding as warnings, which tell each problem of YAML alone."""
    heads = (text.removeprefix(_YAML_PROBLEMS) for text in problems)
    return [line.removeprefix("  ") for text in heads for line in text.split("\n")]


def repeated_fields(value: Any) -> list[str]:
    """A text for each key of the value that comes twice in its map."""
    found: list[str] = []
    _plain(value, "", found)
    return found


def _plain(value: Any, path: str, found: list[str]) -> Any:
    if isinstance(value, list):
        return [_plain(one, f"{path}[{index}]", found) for index, one in enumerate(value)]
    if isinstance(value, Repeated):
        if value.problem:
            found.append(value.problem)
        seen: set[str] = set()
        for key, _ in value.pairs:
            if key in seen:
                found.append(f'duplicate field "{f"{path}.{key}" if path else key}"')
            seen.add(key)
    if isinstance(value, dict):
        return {key: _plain(one, f"{path}.{key}" if path else key, found) for key, one in value.items()}
    return _go_number(value) if type(value) in (int, float, Decimal) else value


def _go_number(value: float) -> float:
    """A number as Go's json reads it, and writes it again."""
    found = float(value)
    if math.isinf(found):
        raise NumberTooLarge(f"json: cannot unmarshal number {value} into Go value of type float64")
    is_integer = isinstance(value, int) or found.is_integer()
    return int(value) if is_integer and -(2**63) <= value < 2**63 else found
