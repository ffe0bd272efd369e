"""Compares the output that a page shows with what was printed. A page may leave parts out with ``…``.

``…`` within a line matches any characters; a line that is only ``…`` matches any number of lines.
Several blanks are the same as one. Blanks at the ends of lines, and empty lines at the end, do not count.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

ANYTHING = "…"
_BLANKS = re.compile(r"[^\S\n]+")


def matches(shown: str, printed: str) -> bool:
    """Whether the shown output matches what was printed."""
    wanted, got = lines_of(shown), lines_of(printed)
    # Empty lines at the end do not count, but a page may show some of them before a line that is ``…``.
    most = wanted.count("")
    return any(_all_match(wanted, [*got, *[""] * more]) for more in range(most + 1))


def _all_match(wanted: Sequence[str], got: Sequence[str]) -> bool:
    """Whether all lines match."""
    # The part between two lines of ``…`` can be taken where it matches first: a later match leaves less for
    # the parts after it. line_matches does the same with characters.
    parts = parts_of(wanted)
    if len(parts) == 1:
        return len(wanted) == len(got) and _fit(wanted, got)
    first, *between, last = parts
    rest = len(got) - len(last)
    if len(first) > rest or not _fit(first, got) or not _fit(last, got[rest:]):
        return False
    at = len(first)
    for part in between:
        while at + len(part) <= rest and not _fit(part, got[at:]):
            at += 1
        if at + len(part) > rest:
            return False
        at += len(part)
    return True


def line_matches(shown: str, printed: str) -> bool:
    """Whether a printed line matches a shown one; both as ``lines_of`` gives them."""
    first, *rest = shown.split(ANYTHING)
    if not rest:
        return shown == printed
    *between, last = rest
    if len(first) + len(last) > len(printed) or not printed.startswith(first) or not printed.endswith(last):
        return False
    at, end = len(first), len(printed) - len(last)
    for part in between:
        found = printed.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def difference(shown: str, printed: str) -> str:
    """The differences: ``-`` before lines that were expected, ``+`` before those that came instead."""
    wanted, got = lines_of(shown), lines_of(printed)
    # A line that matches a shown line counts as equal, even if its text differs.
    as_shown = [next((line for line in wanted if _is_shown(line, one)), one) for one in got]
    compared = difflib.ndiff(wanted, as_shown)
    return "\n".join(line.rstrip() for line in compared if not line.startswith("?"))


def lines_of(text: str) -> list[str]:
    """The lines as they are compared."""
    lines = [_BLANKS.sub(" ", line).rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _is_shown(shown: str, printed: str) -> bool:
    return shown != ANYTHING and line_matches(shown, printed)


def _fit(wanted: Sequence[str], got: Sequence[str]) -> bool:
    """Whether the first lines of ``got`` match."""
    return len(wanted) <= len(got) and all(map(line_matches, wanted, got))


def parts_of(lines: Sequence[str]) -> list[list[str]]:
    """The lines between lines that are only ``…``; one part if there is no such line."""
    parts: list[list[str]] = [[]]
    for line in lines:
        if line.strip() == ANYTHING:
            parts.append([])
        else:
            parts[-1].append(line)
    return parts
