"""Looks at a page of Markdown, and tells what of its prose breaks a rule."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from prose.passages import CODE, Passage, markup, passages
from prose.words import INVERTED, NAMES, WORDS

MOST_WORDS = 45
"""A sentence with more needs a second reading."""

MOST_ALIKE = 3
"""So many sentences in a row that begin with the same word read like a list that is none."""

_FREE = frozenset({CODE, "The", "A", "An"})
"""Sentences may begin with them as often as they like."""

_WORD = re.compile(r"[\w\u2019'-]+")
_TAG = re.compile(
    r"<!--.*?-->|</?(?:a|b|br|div|details|em|img|p|picture|source|sub|summary|sup)\b[^>]*>", re.DOTALL
)
"""HTML that pages may have."""

_HIDDEN = frozenset({"Cf", "Co", "Cs", "Cn"})
"""Categories of Unicode whose characters nobody sees: of format, private, half, or not assigned."""

_BLANKS_THAT_LOOK_ALIKE = re.compile(r"[\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A line of a page, counted from 1, and what is wrong there."""

    line: int
    what: str


def findings(page: str, *, is_history: bool = False) -> list[Finding]:
    """All that breaks a rule. ``is_history``: the page says what changed, so it may speak of before."""
    found = list(_hidden(page))
    for passage in passages(page):
        found += _words(passage, is_history=is_history)
        found += _names(passage)
        found += _sentences(passage)
    found += [
        Finding(line, f"{tag!r} is taken for HTML and not shown: put it into backticks")
        for line, tag in markup(page)
        if not _TAG.fullmatch(tag)
    ]
    return sorted(set(found))


def _words(passage: Passage, *, is_history: bool) -> Iterator[Finding]:
    for words in WORDS:
        if is_history and words.in_histories:
            continue
        for match in words.pattern.finditer(passage.text):
            yield Finding(passage.line_of(match.start()), f"{match.group().strip(' .:;')!r}: {words.why}")


def _names(passage: Passage) -> Iterator[Finding]:
    for pattern, name in NAMES:
        for match in pattern.finditer(passage.text):
            yield Finding(passage.line_of(match.start()), f"{match.group()!r}: the name is written {name}")


def _sentences(passage: Passage) -> Iterator[Finding]:
    first, alike = "", 1
    for at, sentence in passage.sentences():
        words = _WORD.findall(sentence)
        line = passage.line_of(at)
        if len(words) > MOST_WORDS:
            yield Finding(
                line, f"a sentence of {len(words)} words, {MOST_WORDS} are the most: {' '.join(words[:6])} …"
            )
        if INVERTED.match(sentence):
            yield Finding(
                line, f"a sentence that begins with its end, turn it round: {' '.join(words[:6])} …"
            )
        alike = alike + 1 if words and words[0] == first not in _FREE else 1
        first = words[0] if words else ""
        if alike == MOST_ALIKE:
            yield Finding(line, f"{MOST_ALIKE} sentences in a row begin with {first!r}")


def _hidden(page: str) -> Iterator[Finding]:
    for number, line in enumerate(page.split("\n"), 1):
        for character in line:
            hidden = unicodedata.category(character) in _HIDDEN or _BLANKS_THAT_LOOK_ALIKE.match(character)
            if hidden or (unicodedata.category(character) == "Cc" and character != "\t"):
                yield Finding(number, f"a character that nobody sees: U+{ord(character):04X}")
