"""Tables of Markdown, and the places of a page that are written anew, each between two marks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

Parts = Mapping[str, Callable[[], str]]
"""What is made, by the names of the places that it goes to."""

_PLACE = re.compile(
    r"<!-- (?P<name>[a-z -]+): made by python -m tools.docs.lookup -->\n.*?<!-- until here -->\n", re.DOTALL
)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with these columns; what would end a cell is written so that it does not."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n".replace("|  |", "| |") for line in lines)


def code(text: str) -> str:
    """The text as code, nothing for an empty one."""
    return f"`{text}`" if text else ""


def names(page: str) -> list[str]:
    """The names of the places of a page."""
    return [found["name"] for found in _PLACE.finditer(page)]


def renewed(page: str, parts: Parts) -> str:
    """The page with what is made in its places; raises ValueError for a place that nothing is made for."""

    def renew(found: re.Match[str]) -> str:
        name = found["name"]
        if name not in parts:
            raise ValueError(f"nothing is made for the place {name!r}")
        return (
            f"<!-- {name}: made by python -m tools.docs.lookup -->\n\n{parts[name]()}\n<!-- until here -->\n"
        )

    return _PLACE.sub(renew, page)


def _cell(text: str) -> str:
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    written = "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)
    return re.sub(r"(?<!\\)\|", r"\\|", written)
