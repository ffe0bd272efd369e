"""Draws a run: memory, threads and descriptors of both processes, and the claims held, over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpuctl.svg.drawing import Drawing
from tools.soak.judgement import Mark, Sample

_WIDTH, _LEFT, _RIGHT, _PANEL, _GAP, _TOP = 960, 56, 16, 110, 34, 76
_LINES = {"kubelet plugin": "nvlink", "controller": "edge"}
"""The class of each process's line."""

_PROCESSES = {"kubeletplugin": "kubelet plugin", "controller": "controller"}
_MOST_POINTS = 600


def plot(samples: Sequence[Sample], marks: Sequence[Mark], title: str) -> str:
    """The picture as SVG."""
    drawing = Drawing(_WIDTH, title, _described(samples, marks))
    drawing.words(_LEFT, 24, title, "words head")
    _legend(drawing)
    of_processes: dict[str, Callable[[Sample, str], float]] = {
        "memory, MiB": lambda one, name: one.processes[name].memory_mib,
        "threads": lambda one, name: one.processes[name].threads,
        "descriptors": lambda one, name: one.processes[name].descriptors,
    }
    y = float(_TOP)
    for words, value in of_processes.items():
        lines = {
            _LINES[told]: [(one.at, value(one, name)) for one in samples if name in one.processes]
            for name, told in _PROCESSES.items()
        }
        _panel(drawing, y, words, lines, samples[-1].at, marks)
        y += _PANEL + _GAP
    _panel(
        drawing, y, "claims held", {"nvlink": [(one.at, one.held) for one in samples]}, samples[-1].at, marks
    )
    y += _PANEL
    for minute in _minutes(samples[-1].at):
        drawing.words(
            _x(minute * 60, samples[-1].at), y + 16, f"{minute} min", "faint small", anchor="middle"
        )
    return drawing.text(y + 28)


def _described(samples: Sequence[Sample], marks: Sequence[Mark]) -> str:
    first, last = samples[0], samples[-1]
    told = (
        f"the {words}'s memory {first.processes[name].memory_mib:.0f} MiB at the start and "
        f"{last.processes[name].memory_mib:.0f} MiB at the end"
        for name, words in _PROCESSES.items()
        if name in first.processes and name in last.processes
    )
    return (
        f"{last.claims} claims in {last.at / 60:.0f} minutes with {len(marks)} faults and restarts: "
        f"{', '.join(told)}."
    )


def _legend(drawing: Drawing) -> None:
    x = float(_LEFT)
    for words, kind in (*_LINES.items(), ("restart, full disk", "excluded"), ("fault of a GPU", "sick")):
        drawing.curve(f"M{x:g} 40h18", kind, width=2)
        drawing.words(x + 24, 44, words, "faint")
        x += 48 + 7.3 * len(words)


def _panel(
    drawing: Drawing,
    y: float,
    words: str,
    lines: dict[str, list[tuple[float, float]]],
    until: float,
    marks: Sequence[Mark],
) -> None:
    """Values from 0 at the bottom to the largest at the top, with the marks behind them."""
    most = max(value for points in lines.values() for _, value in points) * 1.1 or 1.0
    drawing.words(_LEFT, y - 6, words, "faint")
    drawing.box(_LEFT, y, _WIDTH - _LEFT - _RIGHT, _PANEL, "card", round_=0)
    for part in (0.0, 0.5, 1.0):
        drawing.words(
            _LEFT - 6, y + _PANEL * (1 - part) + 4, f"{most * part:.0f}", "faint small", anchor="end"
        )
    for mark in marks:
        hint = f"{mark.what} at {mark.began:.0f} s"
        height, kind = (_PANEL, "excluded") if mark.gpu is None else (6, "sick")
        drawing.curve(f"M{_x(mark.began, until):.1f} {y + _PANEL:g}v-{height}", kind, hint=hint)
    for kind, points in lines.items():
        # Of a long run every n-th sample: more than one in a pixel cannot be seen.
        shown = points[:: len(points) // _MOST_POINTS + 1]
        steps = (f"{_x(at, until):.1f} {y + _PANEL * (1 - value / most):.1f}" for at, value in shown)
        drawing.curve("M" + "L".join(steps), kind, width=2)


def _x(at: float, until: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * at / until


def _minutes(until: float) -> range:
    """The minutes that are named: ten at most."""
    return range(0, int(until / 60) + 1, int(until / 600) + 1)
