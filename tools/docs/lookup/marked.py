"""Tables in Markdown, and replacing the parts of a page, between two marks, that are generated."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

Parts = Mapping[str, Callable[[], str]]
"""Name of the place in a page -> the function that makes its text."""

WORDS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("words.yaml").read_text())
"""What people wrote for the tables; a table is refused whose names are not those of the code."""

_PLACE = re.compile(
    r"<!-- (?P<name>[a-z -]+): made by python -m tools.docs.lookup -->\n.*?<!-- until here -->\n", re.DOTALL
)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with these columns; characters that would end a cell are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n".replace("|  |", "| |") for line in lines)


def code(text: str) -> str:
    """The text as code; empty for an empty text."""
    return f"`{text}`" if text else ""


def names(page: str) -> list[str]:
    """The names of the places of a page."""
    return [found["name"] for found in _PLACE.finditer(page)]


def renewed(page: str, parts: Parts) -> str:
    """The page with all places filled; raises ValueError for a place with an unknown name."""

    def renew(found: re.Match[str]) -> str:
        name = found["name"]
        if name not in parts:
            raise ValueError(f"nothing is made for the place {name!r}")
        return (
            f"<!-- {name}: made by python -m tools.docs.lookup -->\n\n{parts[name]()}\n<!-- until here -->\n"
        )

    return _PLACE.sub(renew, page)


def _cell(text: str) -> str:
    # In code a "<" is plain text. A "|" ends a cell even there.
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    written = "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)
    return re.sub(r"(?<!\\)\|", r"\\|", written)
