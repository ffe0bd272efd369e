"""Reads the JSON and the YAML of a body as Go does, and refuses it in Go's words.

What is no Unicode becomes U+FFFD: bytes that are no UTF-8, and halves of surrogate pairs.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_NOT_SPACE = re.compile(r"[^ \t\r\n]")
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
_SHOWN_BYTES = 30


class BodyError(ValueError):
    """The body cannot be read; the text is the rest of what the API server answers with 400."""


class Decimal(float):
    """A number that is no integer, with its ``text`` in the body."""

    __slots__ = ("text",)

    def __new__(cls, text: str) -> Decimal:
        """The number that the text says."""
        made = super().__new__(cls, text)
        made.text = text
        return made

    def __str__(self) -> str:
        return self.text


class Repeated(dict[str, Any]):
    """An object some of whose keys come more than once; ``pairs`` are all entries in their order."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


def read_json(body: bytes) -> Any:
    """The value of a JSON text; raises BodyError."""
    text = body.decode(errors="replace")
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise BodyError(f"{_in_go(error)} ({_shown(body)})") from error
    except RecursionError as error:
        raise BodyError(f"exceeded max depth ({_shown(body)})") from error
    # The halves of pairs are escaped, so that almost no body has to be gone through.
    return _replaced(value) if _ESCAPED_SURROGATE.search(body) else value
