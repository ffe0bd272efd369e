"""Draws what happens over time in a simulation, as SVG: the queue, the GPUs of each class, fragmentation."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpuctl.simulate.results import Course
from gpuctl.svg.drawing import Drawing, fitted
from gpuctl.svg.panel import Panel

_WIDTH, _LEFT, _RIGHT = 960, 64, 208
_PLOT = _WIDTH - _LEFT - _RIGHT
_KINDS = ("whole", "partition", "shared", "machine", "number")
"""The colours of classes; those that have the least GPU-hours have the last one in common."""

Layer = tuple[str, str, Sequence[float]]
"""The name, the colour and the values of a layer of a panel."""


def course_svg(course: Course) -> str:
    """The whole course, with its end below."""
    peak = max(course.waiting, default=0.0)
    fragmented = [100 * one for one in course.fragmentation]
    used = (
        f"{max(map(sum, zip(*course.gpus.values(), strict=True)), default=0.0):,.1f} of {course.all_gpus:,}"
    )
    words = f"At most {peak:,.1f} pods waited, and {used} GPUs were in use, on average over a step."
    drawing = Drawing(_WIDTH, "The course of a simulation", words)
    for title, top, height, most, unit, layers in (
        ("pods that wait", 36, 120, _round_up(peak), "", [("", "number", course.waiting)]),
        (f"GPUs in use, of {course.all_gpus:,}", 204, 200, max(1, course.all_gpus), "", _classes(course)),
        ("fragmentation of free GPUs", 452, 120, 100, "%", [("", "number", fragmented)]),
    ):
        panel = Panel(title, _LEFT, top, _PLOT, height, most, course.ended_seconds, unit)
        panel.draw(drawing, moments=True)
        _stack(drawing, panel, layers, course.step_seconds)
    if not course.waiting:
        drawing.words(_LEFT, 20, "everything happened at one moment", "alarm")
    return drawing.text(612)


def _classes(course: Course) -> list[Layer]:
    """The classes, those with the most GPU-hours first; further ones are added up."""
    names = sorted(course.gpus, key=lambda name: (-course.gpu_hours[name], name))
    own = names if len(names) <= len(_KINDS) else names[: len(_KINDS) - 1]
    found: list[Layer] = [(name, kind, course.gpus[name]) for name, kind in zip(own, _KINDS, strict=False)]
    rest = [course.gpus[name] for name in names[len(own) :]]
    if rest:
        found.append(
            (f"{len(rest)} other classes", _KINDS[-1], [sum(step) for step in zip(*rest, strict=True)])
        )
    return found


def _stack(drawing: Drawing, panel: Panel, layers: Sequence[Layer], step_seconds: float) -> None:
    """Draw layers that lie on one another, each with its name beside the panel."""
    below = [0.0] * len(layers[0][2])
    for row, (name, kind, values) in enumerate(layers):
        above = [low + value for low, value in zip(below, values, strict=True)]
        drawing.curve(_area(below, above, panel, step_seconds), kind, width=0, hint=name)
        below = above
        if name:
            y = panel.top + 18 * row
            drawing.box(_WIDTH - _RIGHT + 16, y, 12, 12, kind, round_=2)
            drawing.words(_WIDTH - _RIGHT + 34, y + 11, fitted(name, _RIGHT - 40), "faint")


def _area(below: Sequence[float], above: Sequence[float], panel: Panel, step_seconds: float) -> str:
    """The steps of the upper edge from the left, then those of the lower one back."""
    x = [f"{panel.x(step * step_seconds):.1f}" for step in range(len(above) + 1)]
    there = [f"V{panel.y(value):.1f}H{x[step + 1]}" for step, value in enumerate(above)]
    back = [f"V{panel.y(value):.1f}H{x[step]}" for step, value in enumerate(below)]
    return "".join((f"M{panel.left:g} {panel.bottom:.1f}", *there, *reversed(back), "Z"))


def _round_up(most: float) -> float:
    """The next of 1, 2, 5, 10, 20 and so on."""
    size = 10.0 ** math.floor(math.log10(max(most, 1.0)))
    return size * next(factor for factor in (1, 2, 5, 10) if most <= factor * size)
