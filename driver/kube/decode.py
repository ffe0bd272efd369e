"""Reads JSON of the API server, in which tenants may have put what Python does not read as it stands.

The opaque configuration of a claim is any JSON of up to 10 KiB, and the API server stores it as it came. What
is nested a thousand times there would fail a whole list of claims, and with it whoever lists claims. So such
parts are read as null: no configuration of ours has them. Long numbers are read as the API server reads them.
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


def decode_json(data: bytes) -> Any:
    """The document, without what is nested too deeply; raises ValueError where it is none."""
    try:
        return json.loads(data)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except RecursionError:
        return json.loads(_shallow(data), parse_int=_number)
    except ValueError:
        return json.loads(data, parse_int=_number)


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
