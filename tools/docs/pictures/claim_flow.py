"""Draws how a claim flows: who does what, from a GPU that is published to one that is given back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from gpuctl.svg.drawing import Drawing
from proto import dra_v1_pb2

Party = Literal["you", "API server", "scheduler", "controller", "plugin", "kubelet", "containerd"]
Phase = Literal["published", "claimed", "allocated", "prepared", "in use", "given back"]

_METHODS = dra_v1_pb2.DESCRIPTOR.services_by_name["DRAPlugin"].methods_by_name
_PREPARE = _METHODS["NodePrepareResources"].name
_UNPREPARE = _METHODS["NodeUnprepareResources"].name

PARTIES: dict[Party, str] = {
    "you": "card",
    "API server": "card",
    "scheduler": "card",
    "controller": "whole",
    "plugin": "whole",
    "kubelet": "card",
    "containerd": "card",
}
"""From left to right, each with the kind of its box: those of this driver stand out."""

_GROUPS: tuple[tuple[Party, Party, str], ...] = (
    ("API server", "scheduler", "the control plane"),
    ("controller", "containerd", "each node with GPUs"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """Who does something, towards whom, None where it is done alone; ``words`` is what, without a subject."""

    phase: Phase
    by: Party
    towards: Party | None
    words: str


STEPS = (
    Step("published", "controller", "API server", "writes ResourceSlices: all forms of each GPU"),
    Step("claimed", "you", "API server", "create a pod and its ResourceClaim"),
    Step("allocated", "API server", "scheduler", "shows pods, claims, classes and slices"),
    Step("allocated", "scheduler", "API server", "writes devices into the claim, binds the pod"),
    Step("prepared", "API server", "kubelet", "shows the pod to the node that it is bound to"),
    Step("prepared", "kubelet", "plugin", f"calls {_PREPARE} with the claim"),
    Step("prepared", "plugin", "API server", "reads what was allocated"),
    Step("prepared", "plugin", None, "makes the partition or share, writes a CDI spec"),
    Step("prepared", "plugin", "kubelet", "answers with the names of CDI devices"),
    Step("in use", "kubelet", "containerd", "has the containers made with these devices"),
    Step("in use", "containerd", None, "adds device nodes, files, variables of the spec"),
    Step("given back", "kubelet", "plugin", f"calls {_UNPREPARE} when the pod ended"),
    Step("given back", "plugin", None, "removes the spec, takes back what it made"),
    Step("given back", "API server", None, "the claim is deallocated: its devices are free"),
)

_MARGIN, _LANE, _ROW, _HEAD, _DOT = 16, 78, 30, 30, 9
_WORDS_AT = _MARGIN + _LANE * len(PARTIES) + 14
_WIDTH = _WORDS_AT + 384
_TOP = 50


def claim_flow() -> str:
    """The picture: a lane for each party, a numbered arrow for each step, and what it is beside it."""
    numbered = list(enumerate(STEPS, 1))
    drawing = Drawing(_WIDTH, "How a claim flows", ". ".join(_told()))
    rows_begin = _TOP + _HEAD + 16
    phases = [list(steps) for _, steps in groupby(numbered, key=lambda one: one[1].phase)]
    end = rows_begin + sum(_ROW * len(steps) + 26 for steps in phases)
    for party in PARTIES:
        drawing.curve(f"M{_lane(party):g} {_TOP + _HEAD}V{end:g}", "excluded")
    _heads(drawing)
    y = float(rows_begin)
    for steps in phases:
        drawing.words(_WORDS_AT, y + 12, steps[0][1].phase, "words head")
        drawing.curve(f"M{_MARGIN} {y - 4:g}H{_WIDTH - _MARGIN}", "excluded")
        y += 26
        for number, step in steps:
            _step(drawing, number, step, y)
            y += _ROW
    drawing.box(_MARGIN, end + 8, 14, 14, "whole", round_=2)
    drawing.words(
        _MARGIN + 20, end + 20, "this driver; the others are Kubernetes and its container runtime", "faint"
    )
    return drawing.text(end + 22 + _MARGIN)


def _told() -> Iterator[str]:
    for number, one in enumerate(STEPS, 1):
        subject = "" if one.by == "API server" and one.towards is None else f"{one.by} "
        towards = f" ({one.towards})" if one.towards else ""
        yield f"{number}, {one.phase}: {subject}{one.words}{towards}"


def _lane(party: Party) -> float:
    return _MARGIN + _LANE * (list(PARTIES).index(party) + 0.5)


def _heads(drawing: Drawing) -> None:
    for first, last, words in _GROUPS:
        left, right = _lane(first) - _LANE / 2 + 3, _lane(last) + _LANE / 2 - 3
        drawing.words((left + right) / 2, _TOP - 20, words, "faint small", anchor="middle")
        drawing.curve(f"M{left:g} {_TOP - 6}V{_TOP - 12}H{right:g}V{_TOP - 6}", "edge")
    for party, kind in PARTIES.items():
        drawing.box(_lane(party) - _LANE / 2 + 3, _TOP, _LANE - 6, _HEAD, kind, round_=6)
        words = "on small" if kind == "whole" else "words small"
        drawing.words(_lane(party), _TOP + 19, party, words, anchor="middle")


def _step(drawing: Drawing, number: int, step: Step, y: float) -> None:
    """An arrow from whoever does it, with the number where it begins; a dot where it is done alone."""
    x, middle = _lane(step.by), y + 8
    if step.towards is not None:
        end = _lane(step.towards)
        way = 1 if end > x else -1
        drawing.curve(f"M{x:g} {middle:g}H{end - 2 * way:g}", "edge", width=1.5)
        tip = (
            f"M{end - 8 * way:g} {middle - 4:g}L{end - 1 * way:g} {middle:g}L{end - 8 * way:g} {middle + 4:g}"
        )
        drawing.curve(tip, "edge", width=1.5)
    kind = "whole" if PARTIES[step.by] == "whole" else "number"
    drawing.box(x - _DOT, middle - _DOT, 2 * _DOT, 2 * _DOT, kind, round_=_DOT)
    drawing.words(x, middle + 4, str(number), "on small", anchor="middle")
    drawing.words(_WORDS_AT, middle + 5, str(number), "faint")
    drawing.words(_WORDS_AT + 24, middle + 5, step.words, "words")
