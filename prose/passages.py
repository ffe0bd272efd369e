"""Markdown becomes passages of prose: paragraphs, headings, items, cells, without the code in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token

CODE = "CODE"
"""Stands for a piece of code in a passage."""

_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
_SENTENCE = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bvs)[.!?][)\"”]*(?=\s+[^a-z\s])")


@dataclass(frozen=True, slots=True)
class Passage:
    """Some prose that belongs together, and the line of the file at which it begins, counted from 1.

    Its lines are those of the file.
    """

    text: str
    line: int

    def line_of(self, at: int) -> int:
        """The line of the file for a place in the text."""
        return self.line + self.text.count("\n", 0, at)

    def sentences(self) -> Iterator[tuple[int, str]]:
        """The sentences, each with the place in the text at which it begins."""
        start = 0
        for end in [*(found.end() for found in _SENTENCE.finditer(self.text)), len(self.text)]:
            sentence = self.text[start:end]
            blanks = len(sentence) - len(sentence.lstrip())
            if sentence.strip():
                yield start + blanks, sentence.strip()
            start = end


def passages(page: str) -> Iterator[Passage]:
    """All passages of a page in their order."""
    front = _FRONT_MATTER.match(page)
    before = page.count("\n", 0, front.end()) if front else 0
    for token in _MARKDOWN.parse(page[front.end() :] if front else page):
        if token.type == "inline" and token.map:
            text = "".join(map(_words, token.children or []))
            if text.strip():
                yield Passage(text, before + token.map[0] + 1)


def markup(page: str) -> Iterator[tuple[int, str]]:
    """What is taken for HTML within passages, each with its line."""
    front = _FRONT_MATTER.match(page)
    before = page.count("\n", 0, front.end()) if front else 0
    for token in _MARKDOWN.parse(page[front.end() :] if front else page):
        if token.type == "inline" and token.map:
            line = before + token.map[0] + 1
            for child in token.children or ():
                line += child.type in ("softbreak", "hardbreak")
                if child.type == "html_inline":
                    yield line, child.content


def _words(token: Token) -> str:
    if token.type in ("softbreak", "hardbreak"):
        return "\n"
    if token.type == "code_inline":
        return CODE
    return token.content if token.type == "text" else ""
