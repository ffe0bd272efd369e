"""Draws what each tier promises about memory, compute, faults and noise, and writes the same as tables."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.svg.drawing import Drawing
from tools.docs.pictures.scene import ROOT
from tools.docs.pictures.tier_table import OTHERWISE, QUESTIONS, TIERS, Level, Promise, Tier

PAGE = ROOT / "docs" / "which-tier.md"
BEGIN, END = "<!-- {}: written by python -m tools.docs.pictures -->", "<!-- end of {} -->"

_LEVELS: dict[Level, tuple[str, str]] = {
    "own": ("near", "its own"),
    "limited": ("middle", "shared, within limits"),
    "shared": ("far", "shared"),
}
"""How a cell is coloured, and what it says."""

_MARGIN, _NAME, _CELL, _ROW = 16, 420, 124, 32
_COLUMNS = ("memory", "compute", "faults", "noise")
_WIDTH = 2 * _MARGIN + _NAME + _CELL * len(_COLUMNS)


def tiers() -> str:
    """The picture: a row for each tier, a cell for each promise."""
    told = ". ".join(f"{_names(one)}: {_described(one)}" for one in TIERS)
    drawing = Drawing(_WIDTH, "What each tier promises", told)
    for number, column in enumerate(_COLUMNS):
        x = _MARGIN + _NAME + (number + 0.5) * _CELL
        drawing.words(x, 28, column, "words head", anchor="middle")
    y = 40.0
    for tier in TIERS:
        drawing.box(_MARGIN, y + 3, 6, _ROW - 6, tier.kind, round_=2)
        drawing.words(_MARGIN + 16, y + 20, _names(tier), "words")
        for number, promise in enumerate(_promises(tier)):
            kind, words = _LEVELS[promise.level]
            x = _MARGIN + _NAME + number * _CELL
            drawing.box(x, y + 1, _CELL - 2, _ROW - 2, kind, hint=_plain(promise.words), round_=2)
            drawing.words(x + _CELL / 2 - 1, y + 20, words, "words small", anchor="middle")
        y += _ROW
    return drawing.text(y + _MARGIN)


def with_tables(page: str) -> str:
    """The page with its tables as they are now; raises ValueError for a page without their marks."""
    for name, rows in (("questions", _questions()), ("tiers", _gifts()), ("promises", _rows())):
        begin, end = BEGIN.format(name), END.format(name)
        before, found, rest = page.partition(f"{begin}\n")
        _, found_end, after = rest.partition(f"{end}\n")
        if not found or not found_end:
            raise ValueError(f"the page has no marks for the table of {name}")
        page = "".join((before, found, *(f"{row}\n" for row in rows), found_end, after))
    return page


def _questions() -> Iterator[str]:
    yield "| question | for example | yes: ask for |"
    yield "|---|---|---|"
    for one in QUESTIONS:
        classes = ", ".join(_quoted(tier) for tier in one.tiers)
        yield f"| {one.words} | {one.meaning} | {classes} |"
    yield f"| none of these | memory that neighbors cannot take, and nothing more | {_quoted(OTHERWISE)} |"


def _gifts() -> Iterator[str]:
    yield "| class | gives | needs |"
    yield "|---|---|---|"
    for one in TIERS:
        yield f"| {_quoted(one)} | {one.gives} | {one.needs} |".replace("|  |", "| |")


def _rows() -> Iterator[str]:
    yield "| class | memory | compute | faults | noise |"
    yield "|---|---|---|---|---|"
    for one in TIERS:
        yield f"| {' | '.join((_quoted(one), *(each.words for each in _promises(one))))} |"


def _promises(tier: Tier) -> tuple[Promise, ...]:
    return tier.memory, tier.compute, tier.faults, tier.noise


def _described(tier: Tier) -> str:
    promises = zip(_COLUMNS, _promises(tier), strict=True)
    return "; ".join(f"{column} {_LEVELS[one.level][1]}: {_plain(one.words)}" for column, one in promises)


def _plain(words: str) -> str:
    return words.replace("`", "")


def _names(tier: Tier) -> str:
    return ", ".join(tier.classes)


def _quoted(tier: Tier) -> str:
    return ", ".join(f"`{name}`" for name in tier.classes)
