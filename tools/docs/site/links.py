"""Finds the links of a Markdown text, and replaces their targets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_FENCE = re.compile(
    r"^[ >]*(?:(?:[-*+]|\d+[.)]) +)?(?P<marks>`{3,}|~{3,})[^\n]*\n.*?^[ >]*(?P=marks)[`~]*[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
_CODE = re.compile(r"(?<!`)(?P<marks>`+)(?!`).+?(?<!`)(?P=marks)(?!`)", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_INLINE = re.compile(r"\]\((?P<target>[^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+\"[^\"]*\")?\)")
_DEFINED = re.compile(r"^ {0,3}\[[^\]]+\]:\s*(?P<target>\S+)", re.MULTILINE)
_ATTRIBUTE = re.compile(r"<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)=\"(?P<target>[^\"]+)\"")


@dataclass(frozen=True, slots=True)
class Link:
    """A link as it is written: its target, and the position of the target in the text."""

    target: str
    start: int
    end: int

    @property
    def path(self) -> str:
        """The target without its anchor; empty for an anchor on the same page."""
        return self.target.partition("#")[0]

    @property
    def anchor(self) -> str:
        """The part of the target after the ``#``; may be empty."""
        return self.target.partition("#")[2]

    @property
    def leaves(self) -> bool:
        """Whether it leads out of the repository, to a URL or an address."""
        return re.match(r"[a-z][a-z0-9+.-]*:", self.target) is not None


def without_code(text: str) -> str:
    """The text with blanks in place of code and comments, so that positions do not change."""
    for pattern in (_FENCE, _COMMENT, _CODE):
        text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)
    return text


def links(text: str) -> Iterator[Link]:
    """All links and pictures of a text in their order, without those in code."""
    prose = without_code(text)
    found = [one for pattern in (_INLINE, _DEFINED, _ATTRIBUTE) for one in pattern.finditer(prose)]
    for one in sorted(found, key=lambda one: one.start("target")):
        yield Link(one["target"], one.start("target"), one.end("target"))


def retarget(text: str, target_of: Callable[[Link], str]) -> str:
    """The text with the target of each link replaced by that which ``target_of`` returns."""
    parts, at = [], 0
    for link in links(text):
        parts += [text[at : link.start], target_of(link)]
        at = link.end
    return "".join([*parts, text[at:]])
