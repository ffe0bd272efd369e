"""Draws who holds what of the GPUs of nodes, as SVG: each GPU is a bar, or a square if nodes are many."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.fleet.gpus import GpuState, Holding
from gpuctl.fleet.nodes import NodeView
from gpuctl.status.live_picture import WORDS, holder, sum_of
from gpuctl.svg.drawing import LINE, Drawing, fitted

MOST_CARDS = 24
"""If there are more nodes, each GPU is a square."""

_WIDTH, _MARGIN = 960, 16
_LABEL, _BAR, _ROW = 64, 560, 30
_SQUARE, _COLUMNS = 16, 2


def occupancy_svg(views: Sequence[NodeView]) -> str:
    """The nodes below one another, with what is amiss in words."""
    total = sum_of(views).plain if views else "no node publishes GPUs of this driver"
    drawing = Drawing(_WIDTH, "Who holds what of the GPUs", f"{total}. {_described(views)}")
    drawing.words(_MARGIN, 28, total, "words head")
    y = _legend(drawing, 44)
    y = _cards(drawing, views, y) if len(views) <= MOST_CARDS else _squares(drawing, views, y)
    return drawing.text(y + _MARGIN)


def _described(views: Sequence[NodeView]) -> str:
    """The picture in words, for screen readers; of many nodes only those with something amiss."""
    words = []
    for view in views if len(views) <= MOST_CARDS else [one for one in views if one.is_amiss]:
        gpus = "; ".join(_gpu_words(gpu) for gpu in view.gpus)
        words.append(f"{view.name}: {gpus}")
    return ". ".join(words)


def _gpu_words(gpu: GpuState) -> str:
    held = ", ".join(map(holder, gpu.holdings)) or "free"
    sick = "".join(f", tainted {one.taint}" for one in gpu.taints)
    return f"GPU {gpu.label} {100 * gpu.used:.0f} % taken: {held}{sick}"


def _legend(drawing: Drawing, y: float) -> float:
    x: float = _MARGIN
    kinds = [*WORDS.items(), ("free", "free"), ("sick", "sick")]
    for kind, words in kinds:
        drawing.box(x, y, 14, 14, kind, round_=2)
        drawing.words(x + 20, y + 12, words, "faint")
        x += 44 + 7.3 * len(words)
    return y + 32


def _cards(drawing: Drawing, views: Sequence[NodeView], y: float) -> float:
    for view in views:
        problem = view.state.pool_problem
        height = 34 + _ROW * len(view.gpus) + (LINE if problem else 0)
        drawing.box(_MARGIN, y, _WIDTH - 2 * _MARGIN, height, "card", round_=6)
        about = ", ".join(filter(None, (view.state.product, view.state.driver_version)))
        drawing.words(_MARGIN + 12, y + 22, view.name, "words head")
        drawing.words(_WIDTH - _MARGIN - 12, y + 22, about, "faint", anchor="end")
        at = y + 32
        if problem:
            drawing.words(
                _MARGIN + 12, at + 10, fitted(f"no device can be allocated: {problem}", 880), "alarm"
            )
            at += LINE
        for gpu in view.gpus:
            _bar(drawing, gpu, at)
            at += _ROW
        y += height + 12
    return y


def _bar(drawing: Drawing, gpu: GpuState, y: float) -> None:
    x = _MARGIN + _LABEL
    drawing.words(x - 10, y + 15, fitted(gpu.label, _LABEL - 8), "words", anchor="end")
    drawing.box(x, y, _BAR, 22, "free", hint=_gpu_words(gpu))
    at = 0.0
    for one in sorted(gpu.takers, key=lambda one: (one.start is None, one.start or 0)):
        left, part = at, one.part
        if one.start is not None and gpu.memory_slices:
            left = one.start / gpu.memory_slices
        else:
            at += part
        width = max(4.0, min(part, 1.0 - min(left, 1.0)) * _BAR)
        place = x + min(left * _BAR, _BAR - width)
        drawing.box(place, y, width, 22, one.kind, hint=holder(one))
        drawing.words(place + 6, y + 15, _name(one, width - 12), "on")
    if gpu.is_sick:
        drawing.box(x - 1, y - 1, _BAR + 2, 24, "sick")
    drawing.words(x + _BAR + 48, y + 15, f"{100 * gpu.used:.0f} %", "faint", anchor="end")
    _taints(drawing, gpu, x + _BAR + 56, y)


def _taints(drawing: Drawing, gpu: GpuState, x: float, y: float) -> None:
    """There is room for two lines beside a bar; if there are more taints, the others are only counted."""
    taints = [str(one.taint).removeprefix("gpu.nvidia.com/") for one in gpu.taints]
    lines = taints if len(taints) <= 2 else [taints[0], f"and {len(taints) - 1} more taints"]
    kind = "alarm small" if gpu.is_sick else "faint small"
    width = _WIDTH - _MARGIN - 8 - x
    for number, line in enumerate(lines):
        base = y + (15 if len(lines) == 1 else 9 + 13 * number)
        drawing.words(x, base, fitted(line, width, small=True, bold=gpu.is_sick), kind)


def _name(one: Holding, width: float) -> str:
    """The claim, and what it holds if there is room for both."""
    both = f"{one.claim}: {one.tier}"
    return both if fitted(both, width) == both else fitted(one.claim, width)


def _squares(drawing: Drawing, views: Sequence[NodeView], y: float) -> float:
    """Draw nodes in columns, those with something amiss first, with a square for each GPU."""
    ordered = sorted(views, key=lambda one: not one.is_amiss)
    column = (_WIDTH - 2 * _MARGIN) / _COLUMNS
    for number, view in enumerate(ordered):
        x, at = _MARGIN + column * (number % _COLUMNS), y + (number // _COLUMNS) * 22
        kind = "alarm" if view.is_amiss else "words"
        drawing.words(x, at + 13, fitted(view.name, 190), kind)
        for place, gpu in enumerate(view.gpus):
            left = x + 196 + place * (_SQUARE + 1)
            _square(drawing, gpu, left, at)
    return y + ((len(ordered) + _COLUMNS - 1) // _COLUMNS) * 22


def _square(drawing: Drawing, gpu: GpuState, x: float, y: float) -> None:
    """Draw a GPU filled from below as far as it is taken, in the colour of the kind that has most of it."""
    drawing.box(x, y, _SQUARE, _SQUARE, "free", hint=_gpu_words(gpu), round_=2)
    if gpu.takers:
        kind = max(gpu.takers, key=lambda one: one.part).kind
        high = max(3.0, _SQUARE * gpu.used)
        drawing.box(x, y + _SQUARE - high, _SQUARE, high, kind, round_=2)
    if gpu.is_sick:
        drawing.box(x, y, _SQUARE, _SQUARE, "sick", round_=2)
