"""The anchors of a page as GitHub names them."""

from __future__ import annotations

import re
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

_GITHUB = MarkdownIt("commonmark").enable(["table", "strikethrough"])
_WRITTEN = re.compile(r"<a\b[^>]*\b(?:id|name)=\"([^\"]+)\"")


def anchors(text: str) -> frozenset[str]:
    """What may stand behind the ``#`` of a link to this Markdown."""
    tokens = _GITHUB.parse(text)
    found = list(_WRITTEN.findall(text))
    times: dict[str, int] = {}
    for heading, content in pairwise(tokens):
        if heading.type == "heading_open":
            slug = slug_of("".join(map(_words, content.children or [])))
            again = times.get(slug, 0)
            times[slug] = again + 1
            found.append(f"{slug}-{again}" if again else slug)
    return frozenset(found)


def slug_of(heading: str) -> str:
    """The anchor of a heading: its letters in lower case, a hyphen for each blank, no punctuation."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _words(token: Token) -> str:
    return token.content if token.type in ("text", "code_inline") else ""
