"""Reads JSON of the API server, in which tenants may have put what Python's parser cannot read.

The opaque configuration of a claim is any JSON of up to 10 KiB, and the API server stores it as it came. A
value nested a thousand times would make every list of claims fail. So such parts are read as null: no
configuration of this driver has them. Long numbers are read as the API server reads them.
"""

from __future__ import annotations

import json
import re
from typing import Any

DEEPEST = 100
"""What is nested deeper is read as null; objects of the API take less than 20."""

_LONGEST_NUMBER = 400
"""Digits of the longest whole number that the API server itself can read: it has it as a float."""

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
"""What nests, and strings, since what is inside of them does not."""

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_ONE_KIND = bytes.maketrans(b"[]{}", b"()()")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def decode_json(data: bytes) -> Any:
    """The document, without what is nested too deeply; raises ValueError where it is none."""
    shallow = _shallow(data) if _is_deep(data) else data
    try:
        return json.loads(shallow)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:
        return json.loads(shallow, parse_int=_number)


def _is_deep(data: bytes) -> bool:
    """Whether anything is nested too deeply. How deeply Python itself reads depends on its release."""
    if data.count(b"{") + data.count(b"[") <= DEEPEST:
        return False  # most objects that are watched; all others take half as long again
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
    """The document with null in place of each object and array that lies too deep."""
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
