"""Draws what happens over time in a simulation, as SVG: the queue, the GPUs of each class, fragmentation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpuctl.simulate.results import Course
from gpuctl.svg.drawing import Drawing, fitted

_WIDTH, _LEFT, _RIGHT = 960, 64, 208
_PLOT = _WIDTH - _LEFT - _RIGHT
_KINDS = ("whole", "partition", "shared", "machine", "number")
"""The colours of classes; those that have the least GPU-hours have the last one in common."""
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_TICKS = 6


@dataclass(slots=True)
class _Chart:
    """A chart with the heights of its layers, which lie on one another, each with its name and colour."""

    title: str
    top: float
    height: float
    most: float
    unit: str = ""
    layers: list[tuple[str, str, Sequence[float]]] = field(default_factory=list)


def course_svg(course: Course) -> str:
    """The whole course, with its end below."""
    peak = max(course.waiting, default=0.0)
    fragmented = [100 * one for one in course.fragmentation]
    most = (
        f"{max(map(sum, zip(*course.gpus.values(), strict=True)), default=0.0):,.1f} of {course.all_gpus:,}"
    )
    words = f"At most {peak:,.1f} pods waited, and {most} GPUs were in use, on average over a step."
    drawing = Drawing(_WIDTH, "The course of a simulation", words)
    charts = (
        _Chart("pods that wait", 36, 120, _round_up(peak), layers=[("", "number", course.waiting)]),
        _Chart(
            f"GPUs in use, of {course.all_gpus:,}", 204, 200, max(1, course.all_gpus), layers=_classes(course)
        ),
        _Chart("fragmentation of free GPUs", 452, 120, 100, "%", [("", "number", fragmented)]),
    )
    for chart in charts:
        _draw(drawing, chart, course)
    if not course.waiting:
        drawing.words(_LEFT, 20, "everything happened at one moment", "alarm")
    return drawing.text(612)


def _classes(course: Course) -> list[tuple[str, str, Sequence[float]]]:
    """The classes, those with the most GPU-hours first; further ones are added up."""
    names = sorted(course.gpus, key=lambda name: (-course.gpu_hours[name], name))
    own = names if len(names) <= len(_KINDS) else names[: len(_KINDS) - 1]
    found: list[tuple[str, str, Sequence[float]]]
    found = [(name, kind, course.gpus[name]) for name, kind in zip(own, _KINDS, strict=False)]
    rest = [course.gpus[name] for name in names[len(own) :]]
    if rest:
        found.append(
            (f"{len(rest)} other classes", _KINDS[-1], [sum(step) for step in zip(*rest, strict=True)])
        )
    return found


def _draw(drawing: Drawing, chart: _Chart, course: Course) -> None:
    bottom = chart.top + chart.height
    drawing.words(_LEFT, chart.top - 10, chart.title, "words head")
    drawing.box(_LEFT, chart.top, _PLOT, chart.height, "card", round_=0)
    for part in (0.0, 0.5, 1.0):
        at = bottom - part * chart.height
        number = f"{chart.most * part:,.4g}{chart.unit}"
        drawing.words(_LEFT - 8, at + 4, number, "faint small", anchor="end")
        drawing.curve(f"M{_LEFT} {at:g}h{_PLOT}", "excluded")
    below = [0.0] * len(course.waiting)
    for row, (name, kind, values) in enumerate(chart.layers):
        above = [low + value for low, value in zip(below, values, strict=True)]
        drawing.curve(_area(below, above, chart, course), kind, width=0, hint=name)
        below = above
        if name:
            y = chart.top + 18 * row
            drawing.box(_WIDTH - _RIGHT + 16, y, 12, 12, kind, round_=2)
            drawing.words(_WIDTH - _RIGHT + 34, y + 11, fitted(name, _RIGHT - 40), "faint")
    for seconds, label in _moments(course.ended_seconds):
        x = _LEFT + _PLOT * seconds / course.ended_seconds
        drawing.words(x, bottom + 16, label, "faint small", anchor="middle")


def _area(below: Sequence[float], above: Sequence[float], chart: _Chart, course: Course) -> str:
    """The steps of the upper edge from the left, then those of the lower one back."""

    def y(value: float) -> str:
        return f"{chart.top + chart.height * (1 - min(1.0, value / chart.most)):.1f}"

    there = [f"V{y(value)}H{_x(step + 1, course):.1f}" for step, value in enumerate(above)]
    back = [f"V{y(value)}H{_x(step, course):.1f}" for step, value in enumerate(below)]
    return "".join((f"M{_LEFT} {y(0.0)}", *there, *reversed(back), "Z"))


def _x(step: int, course: Course) -> float:
    return _LEFT + _PLOT * min(step * course.step_seconds, course.ended_seconds) / course.ended_seconds


def _round_up(most: float) -> float:
    """The next of 1, 2, 5, 10, 20 and so on."""
    size = 10.0 ** math.floor(math.log10(max(most, 1.0)))
    return size * next(factor for factor in (1, 2, 5, 10) if most <= factor * size)


def _moments(ended_seconds: float) -> list[tuple[float, str]]:
    """Round moments below a chart, and their labels."""
    if not ended_seconds:
        return []
    unit, name = next((one for one in _UNITS if ended_seconds >= 2 * one[0]), _UNITS[-1])
    each = max(1, math.ceil(ended_seconds / unit / _TICKS))
    return [(at * unit, f"{at:g} {name}") for at in range(0, int(ended_seconds / unit) + 1, each)]
