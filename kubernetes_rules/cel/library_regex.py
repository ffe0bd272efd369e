"""Functions that search with RE2 expressions (k8s.io/apiserver/pkg/cel/library/regex.go).

They use Google's RE2, like Go's in linear time. Python's expressions have another syntax and can take
exponential time.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from kubernetes_rules.cel.types import INT, STRING, CelError, list_of, method
from kubernetes_rules.cel.values import regex_units, size

_ESCAPED = re.compile(r"\\(.)")


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """The compiled expression. Raises CelError for an invalid one."""
    import re2  # type: ignore[import-untyped]  # google-re2 has no stubs

    # RE2 in C++ matches a single byte by \C; Go's regexp does not have it.
    if "C" in _ESCAPED.findall(pattern):
        raise CelError(r"invalid escape sequence: \C")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise CelError(f"illegal regular expression {pattern[:64]!r}: {error}") from error


def find(text: str, pattern: str) -> str:
    """The first match, empty if there is none. Raises CelError for an invalid expression."""
    match = compiled(pattern).search(text)
    return "" if match is None else str(match[0])


def find_all(text: str, pattern: str, count: int = -1) -> tuple[str, ...]:
    """The matches, at most ``count`` if not negative. Raises CelError for an invalid expression."""
    matches: list[str] = []
    last_end = -1
    for match in compiled(pattern).finditer(text):
        if 0 <= count <= len(matches):
            break
        start, end = match.span()
        # Go skips an empty match right after another match.
        if start < end or start != last_end:
            matches.append(match[0])
        last_end = end
    return tuple(matches)


def _cost(arguments: tuple[Any, ...], _: Any) -> int:
    return regex_units(arguments[0], size(arguments[1]))


OVERLOADS = (
    method("find", (STRING, STRING), STRING, find, _cost),
    method("findAll", (STRING, STRING), list_of(STRING), find_all, _cost),
    method("findAll", (STRING, STRING, INT), list_of(STRING), find_all, _cost),
)
