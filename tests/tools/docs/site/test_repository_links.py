"""Every link in the Markdown of the repository leads to a file, and to a heading where it names one."""

import re
from functools import cache
from itertools import pairwise

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.tools.docs.site.markdown_files import markdown_files
from tools.docs.site.links import links
from tools.docs.site.places import ROOT, resolve

_GITHUB = MarkdownIt("commonmark").enable(["table", "strikethrough"])
_WRITTEN = re.compile(r"<a\b[^>]*\b(?:id|name)=\"([^\"]+)\"")


@cache
def anchors(text: str) -> frozenset[str]:
    """The anchors of this Markdown, as GitHub names them."""
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


def broken(page: str, text: str) -> list[str]:
    """The links of a page that lead nowhere in the repository."""
    wrong = []
    for link in links(text):
        if link.leaves:
            continue
        place = ROOT / (resolve(page, link.path) if link.path else page)
        outside = not place.resolve().is_relative_to(ROOT)
        if outside or not place.exists() or (link.anchor and link.anchor not in anchors(place.read_text())):
            wrong.append(f"line {text.count(chr(10), 0, link.start) + 1}: {link.target}")
    return wrong


@pytest.mark.parametrize("page", markdown_files())
def test_every_link_leads_somewhere(page: str) -> None:
    assert broken(page, (ROOT / page).read_text()) == []
