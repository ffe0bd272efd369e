"""The picture of the README: the same pods on a node of whole GPUs, and on a node with this driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuctl.fleet.nodes import NodeView
from tools.docs.pictures.node_pictures import ALL_TIERS, MACHINE, Wanted, claimed, published
from tools.svg.drawing import Drawing, fitted

_GPUS = 8
_WIDTH, _MARGIN, _TOP = 960, 16, 92
_PANEL, _LABEL, _BAR, _ROW = 456, 24, 408, 30

_TRAINING = tuple(Wanted("ml", f"train-{number}", "large") for number in range(3))
_SERVING = tuple(Wanted("shop", f"serve-{number}", "mig-medium") for number in range(6))
_NOTEBOOKS = tuple(Wanted("lab", f"notebook-{number}", "shared-mps") for number in range(8))
_NEEDS = {"large": (1.0, "whole"), "mig-medium": (0.25, "partition"), "shared-mps": (0.25, "shared")}
"""Of the memory of a GPU; serving and notebooks need 20 of 80 GB. With the kind of their boxes."""


@dataclass(frozen=True, slots=True)
class _Box:
    """A pod on a GPU: where its part begins, and how large it is, both from 0 to 1."""

    pod: str
    kind: str
    start: float
    part: float


def arrivals() -> list[Wanted]:
    """The pods in the order in which they come: of each sort one in turn, as long as there are any."""
    sorts = [list(_TRAINING), list(_SERVING), list(_NOTEBOOKS)]
    return [one for turn in range(len(_NOTEBOOKS)) for sort in sorts for one in sort[turn : turn + 1]]


def before_and_after() -> str:
    """Both nodes side by side, with how many of the pods run on each."""
    pods = arrivals()
    counted = [[_Box(one.name, _NEEDS[one.device_class][1], 0, _NEEDS[one.device_class][0])] for one in pods]
    before = counted[:_GPUS]
    after = _boxes(claimed(published(MACHINE, ALL_TIERS), pods))
    used, free = sum(boxes[0].part for boxes in before), sum(not boxes for boxes in after)
    words = [
        f"{len(before)} pods run, {len(pods) - len(before)} wait; {used:g} of {_GPUS} GPUs are used",
        f"all {len(pods)} pods run; {free} GPU is free",
    ]
    drawing = Drawing(
        _WIDTH,
        "The same pods under a device plugin and under this driver",
        "Three training jobs, six servers and eight notebooks come to a node of eight GPUs. If each pod gets "
        f"a whole GPU, {words[0]}. With partitions and shares made for each pod, {words[1]}.",
    )
    drawing.words(
        _MARGIN,
        24,
        f"{len(_TRAINING)} training jobs need a GPU each, {len(_SERVING)} servers and {len(_NOTEBOOKS)} "
        "notebooks a quarter of its memory",
        "words head",
    )
    _panel(drawing, _MARGIN, ("A device plugin hands out whole GPUs", words[0]), before, waste=True)
    right = _WIDTH - _MARGIN - _PANEL
    _panel(drawing, right, ("This driver cuts and shares as pods ask", words[1]), after, waste=False)
    return drawing.text(_legend(drawing, _TOP + _ROW * _GPUS + 16) + _MARGIN)


def _boxes(view: NodeView) -> list[list[_Box]]:
    """What the pods have of each GPU: partitions where they are placed, shares from left to right."""
    rows = []
    for gpu in view.gpus:
        row: list[_Box] = []
        for one in gpu.takers:
            placed = one.start is not None and gpu.memory_slices
            start = (one.start or 0) / gpu.memory_slices if placed else sum(box.part for box in row)
            row.append(_Box(one.pods[0].rpartition("/")[2], one.kind, start, one.part))
        rows.append(row)
    return rows


def _panel(
    drawing: Drawing, x: float, texts: tuple[str, str], rows: Sequence[Sequence[_Box]], *, waste: bool
) -> None:
    """One node: a bar for each GPU; ``waste`` marks the rest of a GPU that a pod has for itself."""
    drawing.box(x, 40, _PANEL, _TOP + _ROW * _GPUS - 34, "card", round_=6)
    drawing.words(x + 12, 60, texts[0], "words head")
    drawing.words(x + 12, 79, texts[1], "faint")
    for number, boxes in enumerate(rows):
        y = _TOP + _ROW * number
        drawing.words(x + 24, y + 15, str(number), "faint", anchor="end")
        left = x + 12 + _LABEL
        drawing.box(left, y, _BAR, 22, "excluded" if waste else "free")
        for box in boxes:
            width = box.part * _BAR
            drawing.box(left + box.start * _BAR, y, width - 1, 22, box.kind)
            drawing.words(left + box.start * _BAR + 6, y + 15, fitted(box.pod, width - 8), "on")
        if waste and boxes[0].part < 1:
            drawing.words(left + boxes[0].part * _BAR + 10, y + 15, "taken, but not used", "faint")


def _legend(drawing: Drawing, y: float) -> float:
    x: float = _MARGIN
    for kind, words in (("whole", "whole GPU"), ("partition", "MIG partition"), ("shared", "share by MPS")):
        drawing.box(x, y, 14, 14, kind, round_=2)
        drawing.words(x + 20, y + 12, words, "faint")
        x += 44 + 7.3 * len(words)
    return y + 14
