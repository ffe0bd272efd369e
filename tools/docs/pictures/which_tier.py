"""Draws the decision picture: a question after the other, and the tier that a yes leads to."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.svg.drawing import Drawing
from tools.docs.pictures.tier_table import OTHERWISE, QUESTIONS, Tier

_MARGIN, _ASK, _ARROW, _ANSWER = 16, 400, 60, 470
_WIDTH = 2 * _MARGIN + _ASK + _ARROW + _ANSWER
_HIGH, _DOWN = 50, 26
_TOP = 44


def which_tier() -> str:
    """The picture."""
    told = " ".join(
        f"{one.words} Yes: {_names(one.tiers)}; {_gives(one.tiers)}. No: go on." for one in QUESTIONS
    )
    told += f" Otherwise: {_names([OTHERWISE])}; {OTHERWISE.gives}."
    drawing = Drawing(_WIDTH, "Which tier?", told)
    drawing.words(_MARGIN, 28, "Which tier? Stop at the first yes.", "words head")
    y, answer = float(_TOP), _MARGIN + _ASK + _ARROW
    for question in QUESTIONS:
        drawing.box(_MARGIN, y, _ASK, _HIGH, "card", round_=8)
        drawing.words(_MARGIN + 14, y + 21, question.words, "words head")
        drawing.words(_MARGIN + 14, y + 39, question.meaning, "faint")
        middle = y + _HIGH / 2
        _arrow(drawing, (_MARGIN + _ASK, middle), (answer, middle))
        drawing.words(_MARGIN + _ASK + _ARROW / 2 - 4, middle - 6, "yes", "faint small", anchor="middle")
        _tiers(drawing, question.tiers, answer, y)
        below = _MARGIN + _ASK / 2
        _arrow(drawing, (below, y + _HIGH), (below, y + _HIGH + _DOWN))
        drawing.words(below + 8, y + _HIGH + 17, "no", "faint small")
        y += _HIGH + _DOWN
    _tiers(drawing, [OTHERWISE], _MARGIN, y, _ASK)
    return drawing.text(y + _HIGH + _MARGIN)


def _names(tiers: Sequence[Tier]) -> str:
    return ", ".join(name for tier in tiers for name in tier.classes)


def _gives(tiers: Sequence[Tier]) -> str:
    return "; or ".join(tier.gives for tier in tiers)


def _arrow(drawing: Drawing, start: tuple[float, float], end: tuple[float, float]) -> None:
    """To the right, or down."""
    (x, y), (right, down) = start, end
    if y == down:
        drawing.curve(
            f"M{x:g} {y:g}H{right - 2:g}M{right - 8:g} {y - 4:g}L{right - 1:g} {y:g}", "edge", width=1.5
        )
        drawing.curve(f"M{right - 1:g} {y:g}L{right - 8:g} {y + 4:g}", "edge", width=1.5)
        return
    drawing.curve(f"M{x:g} {y:g}V{down - 2:g}M{x - 4:g} {down - 8:g}L{x:g} {down - 1:g}", "edge", width=1.5)
    drawing.curve(f"M{x:g} {down - 1:g}L{x + 4:g} {down - 8:g}", "edge", width=1.5)


def _tiers(drawing: Drawing, tiers: Sequence[Tier], x: float, y: float, room: float = _ANSWER) -> None:
    """The answers to one question beside each other."""
    width = (room - 8 * (len(tiers) - 1)) / len(tiers)
    for tier in tiers:
        drawing.box(x, y, width, _HIGH, tier.kind, round_=8)
        drawing.words(x + 12, y + 21, ", ".join(tier.classes), "on head")
        drawing.words(x + 12, y + 39, tier.gives, "on small")
        x += width + 8
