"""Draws a run: memory, threads and descriptors of both processes, and the claims held, over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tools.soak.judgement import Mark, Process, Sample
from tools.svg.drawing import Drawing
from tools.svg.panel import Panel

_WIDTH, _LEFT, _RIGHT, _HEIGHT, _APART, _TOP = 960, 64, 16, 110, 146, 80
_PROCESSES = {"kubeletplugin": ("kubelet plugin", "nvlink"), "controller": ("controller", "edge")}
"""What each process is called, and the class of its line."""

_MEASURED: Mapping[str, Callable[[Process], float]] = {
    "memory, MiB": lambda one: one.memory_mib,
    "threads": lambda one: one.threads,
    "descriptors": lambda one: one.descriptors,
}
_MOST_POINTS = 600


def plot(samples: Sequence[Sample], marks: Sequence[Mark], title: str) -> str:
    """The picture as SVG."""
    drawing = Drawing(_WIDTH, title, _described(samples, marks))
    drawing.words(_LEFT, 24, title, "words head")
    _legend(drawing)
    panels = {
        words: {
            kind: [(one.at, value(one.processes[name])) for one in samples if name in one.processes]
            for name, (_, kind) in _PROCESSES.items()
        }
        for words, value in _MEASURED.items()
    }
    panels["claims held"] = {"nvlink": [(one.at, one.held) for one in samples]}
    for row, (words, lines) in enumerate(panels.items()):
        most = max(value for points in lines.values() for _, value in points)
        panel = Panel(
            words,
            _LEFT,
            _TOP + _APART * row,
            _WIDTH - _LEFT - _RIGHT,
            _HEIGHT,
            math.ceil(most * 1.1) or 1,
            samples[-1].at,
        )
        panel.draw(drawing, moments=row == len(panels) - 1)
        _fill(drawing, panel, lines, marks)
    return drawing.text(panel.bottom + 28)


def _described(samples: Sequence[Sample], marks: Sequence[Mark]) -> str:
    first, last = samples[0], samples[-1]
    told = (
        f"the {words}'s memory {first.processes[name].memory_mib:.0f} MiB at the start and "
        f"{last.processes[name].memory_mib:.0f} MiB at the end"
        for name, (words, _) in _PROCESSES.items()
        if name in first.processes and name in last.processes
    )
    return (
        f"{last.claims} claims in {last.at / 60:.0f} minutes with {len(marks)} faults and restarts: "
        f"{', '.join(told)}."
    )


def _legend(drawing: Drawing) -> None:
    x = float(_LEFT)
    for words, kind in (*_PROCESSES.values(), ("restart, full disk", "excluded"), ("fault of a GPU", "sick")):
        drawing.curve(f"M{x:g} 40h18", kind, width=2)
        drawing.words(x + 24, 44, words, "faint")
        x += 48 + 7.3 * len(words)


def _fill(
    drawing: Drawing, panel: Panel, lines: Mapping[str, list[tuple[float, float]]], marks: Sequence[Mark]
) -> None:
    """Draw the lines of a panel, with the marks behind them."""
    for mark in marks:
        hint = f"{mark.what} at {mark.began:.0f} s"
        height, kind = (panel.height, "excluded") if mark.gpu is None else (6, "sick")
        drawing.curve(f"M{panel.x(mark.began):.1f} {panel.bottom:g}v-{height:g}", kind, hint=hint)
    for kind, points in lines.items():
        # Of a long run every n-th sample: more than one in a pixel cannot be seen.
        shown = points[:: len(points) // _MOST_POINTS + 1]
        steps = (f"{panel.x(at):.1f} {panel.y(value):.1f}" for at, value in shown)
        drawing.curve("M" + "L".join(steps), kind, width=2)
