"""Reads JSON of the API server, in which tenants may have put things that Python's parser cannot read.

The opaque configuration of a claim is any JSON of up to 10 KiB, and the API server stores it unchanged. A
value that is nested a thousand times would make every list of claims fail. So such parts are read as null; no
configuration of this driver has them. Long numbers are read as the API server reads them.
"""

from __future__ import annotations

import json
import re
from typing import Any

DEEPEST = 100
"""Whatever is nested deeper is read as null. Objects of the API have less than 20 levels."""

_LONGEST_NUMBER = 400
"""The most digits of a whole number that the API server itself can read, as a float."""

# Brackets, and whole strings: a bracket inside of a string does not nest.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_ONE_KIND = bytes.maketrans(b"[]{}", b"()()")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def decode_json(data: bytes) -> Any:
    """The document, with null for parts that are nested too deeply; raises ValueError if it is not JSON."""
    shallow = _shallow(data) if _is_deep(data) else data
    try:
        return json.loads(shallow)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:
        # Python refuses to convert numbers of more than 4300 digits, with a plain ValueError
        # (sys.set_int_max_str_digits).
        return json.loads(shallow, parse_int=_number)


def _is_deep(data: bytes) -> bool:
    """Whether anything is nested too deeply."""
    # Most objects that are watched end here. For the others the check takes half as long as the parser
    # itself.
    if data.count(b"{") + data.count(b"[") <= DEEPEST:
        return False
    # Take away the innermost pairs of brackets again and again, all at once and in C. What is left after
    # DEEPEST rounds is nested too deeply. How deep Python itself can read depends on its release.
    brackets = _STRING.sub(b"", data).translate(_ONE_KIND, _NO_BRACKETS)
    for _ in range(DEEPEST):
        outer = brackets.replace(b"()", b"")
        if len(outer) == len(brackets):
            break
        brackets = outer
    return len(brackets) > DEEPEST or b"()" in brackets


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) <= _LONGEST_NUMBER else float(digits)


def _shallow(data: bytes) -> bytes:
    """The document with null in place of each object and array that is nested too deeply."""
    kept, depth, copied_to = [], 0, 0
    for match in _TOKEN.finditer(data):
        token = match[0]
        if token in b"[{":
            depth += 1
            if depth == DEEPEST + 1:
                kept += [data[copied_to : match.start()], b"null"]
        elif token in b"]}":
            depth -= 1
            if depth == DEEPEST:
                copied_to = match.end()
    if depth:
        raise ValueError("the document ends within an object or an array")
    kept.append(data[copied_to:])
    return b"".join(kept)
