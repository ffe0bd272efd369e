"""Reads a page: its ``sh`` blocks become steps with their expected output, and its YAML blocks are kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from driver.errors import ConfigError

RUN, SHOWN, QUOTED = "sh", "text", "yaml"
UNTIL_SHOWN = "until-shown"
_EXITS = re.compile(r"exits=([0-9]{1,3})")
FRONT = "---"
"""The line above and below a front matter."""


class ScenarioWrong(ConfigError):
    """A scenario's description, its page, or a file in its folder cannot be used."""

    retryable: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: the line of its fence, counted from 1, its language, and its text."""

    line: int
    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """A block that is executed: its expected exit code, and its output if the page shows that.

    With ``until_shown`` it is repeated until it prints the output.
    """

    line: int
    script: str
    exits: int = 0
    until_shown: bool = False
    shown: Block | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """The parts of a page that matter here.

    ``front`` is the front matter, ``quoted`` are the YAML blocks.
    """

    file: Path
    text: str
    front: dict[str, Any]
    steps: tuple[Step, ...]
    quoted: tuple[Block, ...]


def read_page(file: Path) -> Page:
    """Read a page.

    Raises:
        ScenarioWrong: it cannot be read, or an unknown word is after the language of a block.
    """
    try:
        return parse_page(file, file.read_text())
    except OSError as error:
        raise ScenarioWrong(f"{file} cannot be read: {error.strerror}") from error


def parse_page(file: Path, text: str) -> Page:
    """Parse the text of a page; see ``read_page``."""
    front, body = _split_front(file, text)
    tokens = _markdown().parse(body)
    steps = tuple(_steps(file, tokens))
    return Page(
        file,
        text,
        front,
        steps,
        tuple(_block(one) for one in tokens if _language(one) == QUOTED),
    )


def front_of(file: Path, text: str) -> dict[str, Any]:
    """The front matter of a page; raises ScenarioWrong."""
    return _split_front(file, text)[0]


@cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table")


def _split_front(file: Path, text: str) -> tuple[dict[str, Any], str]:
    """The front matter, and the text with empty lines in place of it, so that lines keep their numbers."""
    lines = text.split("\n")
    if lines[0].rstrip() != FRONT or FRONT not in lines[1:]:
        return {}, text
    end = lines.index(FRONT, 1)
    try:
        front = yaml.safe_load("\n".join(lines[1:end])) or {}
    except yaml.YAMLError as error:
        raise ScenarioWrong(f"{file}: its front matter is no YAML: {error}") from error
    if not isinstance(front, dict):
        raise ScenarioWrong(f"{file}: its front matter has to be a mapping")
    return front, "\n".join([""] * (end + 1) + lines[end + 1 :])


def _language(token: Token) -> str:
    """The language of a fenced block; empty for a block without one, and for other tokens."""
    words = token.info.split() if token.type == "fence" else []
    return words[0] if words else ""


def _block(token: Token) -> Block:
    # markdown-it counts lines from 0.
    return Block((token.map or [0])[0] + 1, _language(token), token.content)


def _steps(file: Path, tokens: Sequence[Token]) -> Iterator[Step]:
    for index, token in enumerate(tokens):
        if _language(token) != RUN:
            continue
        block = _block(token)
        exits, until_shown = 0, False
        for word in token.info.split()[1:]:
            matched = _EXITS.fullmatch(word)
            if matched is not None:
                exits = int(matched[1])
            elif word == UNTIL_SHOWN:
                until_shown = True
            else:
                raise ScenarioWrong(
                    f"{file}:{block.line}: {word!r} after sh is not known", f"use exits=N or {UNTIL_SHOWN}"
                )
        shown = _shown_by(tokens[index + 1 :])
        if until_shown and shown is None:
            raise ScenarioWrong(
                f"{file}:{block.line}: {UNTIL_SHOWN} needs a {SHOWN} block below it that is to be shown"
            )
        yield Step(block.line, block.text, exits, until_shown, shown)


def _shown_by(after: Sequence[Token]) -> Block | None:
    """The block with the expected output: right after the step, or after one line that ends with a colon."""
    if [one.type for one in after[:3]] == ["paragraph_open", "inline", "paragraph_close"]:
        words = after[1].content
        if "\n" in words or not words.endswith(":"):
            return None
        after = after[3:]
    return _block(after[0]) if after and _language(after[0]) == SHOWN else None
