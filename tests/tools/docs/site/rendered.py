"""HTML as what a reader sees of it: its words, and how many elements there are of each kind."""

import re
from collections import Counter
from dataclasses import dataclass
from html.parser import HTMLParser

STRUCTURE = re.compile("li|[uo]l|table|t[rdh]|pre|h[1-6]|blockquote|img|strong|em|del|code|details|summary")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a reader sees: the words without any blanks, and the elements that give them a shape."""

    words: str
    elements: Counter[str]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.elements: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 - HTMLParser gives them
        if STRUCTURE.fullmatch(tag):
            self.elements[tag] += 1

    def handle_data(self, data: str) -> None:
        self.words += data.split()


def seen(html: str) -> Seen:
    """What is seen of a piece of HTML."""
    reader = _Reader()
    reader.feed(html)
    return Seen("".join(reader.words), reader.elements)


def article(page: str) -> str:
    """The content of a page of the site, without what the theme adds to it."""
    found = re.search(r"<article[^>]*>(.*?)</article>", page, re.DOTALL)
    assert found, "the page has no article"
    return re.sub(r'<a class="headerlink".*?</a>', "", found[1])
