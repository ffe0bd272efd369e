"""Draws one GPU three times, held whole, cut by MIG and shared: the scheduler decided who gets what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driver.devices.sharing import MEMORY, SHARES
from gpuctl.svg.drawing import Drawing, fitted
from kubernetes_rules.quantity import parse_quantity
from tools.docs.pictures.scene import ALL_TIERS, Wanted, claimed, published

if TYPE_CHECKING:
    from gpuctl.fleet.gpus import GpuState, Holding
    from gpuctl.fleet.nodes import NodeView
    from tools.docs.pictures.scene import Object

MACHINE = "hgx-h100"
_MARGIN, _GAP, _CARD = 16, 16, 298
_WIDTH = 2 * _MARGIN + 2 * _GAP + 3 * _CARD
_INSIDE = 16
_HIGH = 240
"""Of a GPU."""
_CARD_HIGH = 40 + _HIGH + 80
_TOP = 46

_TWO_LINES = 44
"""A part that is lower has its words beside each other."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to hold the GPU: its name, the pods that do, and what keeps them apart."""

    title: str
    wanted: tuple[Wanted, ...]
    promise: tuple[str, str]


WAYS = (
    Way(
        "held whole",
        (Wanted("research", "train", "large"),),
        ("nobody else is on it", "all memory, all compute units"),
    ),
    Way(
        "cut by MIG",
        (
            Wanted("research", "tuning", "mig-large"),
            Wanted("shop", "web", "mig-medium"),
            Wanted("ci", "tests", "mig-small"),
        ),
        ("kept apart by the hardware", "made when a pod asks for them"),
    ),
    Way(
        "shared by MPS",
        tuple(Wanted("lab", f"lab-{number}", "shared-mps") for number in range(3)),
        ("limits on memory and compute units", "the pods run side by side"),
    ),
)


def one_gpu_three_ways() -> str:
    """The picture."""
    slices = published(MACHINE, ALL_TIERS, gpus=1)
    views = [claimed(slices, way.wanted) for way in WAYS]
    gpu = views[0].gpus[0]
    told = "; ".join(_described(way, view, slices) for way, view in zip(WAYS, views, strict=True))
    drawing = Drawing(_WIDTH, "One GPU, held three ways", f"One {gpu.product}. {told}.")
    drawing.words(_MARGIN, 30, f"One {gpu.product}: the node offers all three at once", "words head")
    words = "the first claim decides, without a drain or a reset"
    drawing.words(_WIDTH - _MARGIN, 30, words, "faint", anchor="end")
    for number, (way, view) in enumerate(zip(WAYS, views, strict=True)):
        _card(drawing, way, view, slices, _MARGIN + number * (_CARD + _GAP))
    return drawing.text(_TOP + _CARD_HIGH + _MARGIN)


def _described(way: Way, view: NodeView, slices: Sequence[Object]) -> str:
    held = ", ".join(
        f"{_pod(one)} has {_words(one)}, {_gib(_memory_bytes(one, slices))}" for one in view.gpus[0].holdings
    )
    return f"{way.title}: {held}, {' and '.join(way.promise)}"


def _card(drawing: Drawing, way: Way, view: NodeView, slices: Sequence[Object], x: float) -> None:
    y, width = float(_TOP), _CARD - 2 * _INSIDE
    drawing.box(x, y, _CARD, _CARD_HIGH, "card", round_=8)
    drawing.words(x + _INSIDE, y + 26, way.title, "words head")
    (gpu,) = view.gpus
    drawing.box(x + _INSIDE, y + 40, width, _HIGH, "free", round_=6)
    _parts(drawing, gpu, slices, (x + _INSIDE, y + 40, width))
    y += 40 + _HIGH + 24
    classes = list(dict.fromkeys(one.device_class for one in way.wanted))
    noun = "class" if len(classes) == 1 else "classes"
    drawing.words(x + _INSIDE, y, f"{noun} {', '.join(classes)}", "words")
    for line in way.promise:
        y += 20
        drawing.words(x + _INSIDE, y, line, "faint")


def _parts(
    drawing: Drawing, gpu: GpuState, slices: Sequence[Object], place: tuple[float, float, float]
) -> None:
    """Who holds what, from top to bottom in the order of memory slices, and what is left."""
    x, y, width = place
    at = 0.0
    ordered = sorted(gpu.holdings, key=lambda one: (one.start or 0, one.claim))
    for one in ordered:
        start = at if one.start is None else one.start / gpu.memory_slices
        _free(drawing, (x, y + at * _HIGH, width), (start - at) * _HIGH)
        high = one.part * _HIGH
        _held(drawing, one, _gib(_memory_bytes(one, slices)), (x, y + start * _HIGH, width, high))
        at = start + one.part
    _free(drawing, (x, y + at * _HIGH, width), (1.0 - at) * _HIGH)


def _free(drawing: Drawing, place: tuple[float, float, float], high: float) -> None:
    x, y, width = place
    if high >= 16:
        drawing.words(x + width / 2, y + high / 2 + 4, "free", "faint small", anchor="middle")


def _held(drawing: Drawing, one: Holding, memory: str, place: tuple[float, float, float, float]) -> None:
    x, y, width, high = place
    drawing.box(x + 1.5, y + 1.5, width - 3, high - 3, one.kind, hint=f"{one.claim}: {one.tier}")
    middle = y + high / 2
    what = f"{_words(one)}, {memory}"
    if high >= _TWO_LINES:
        drawing.words(x + width / 2, middle - 3, f"pod {_pod(one)}", "on head", anchor="middle")
        drawing.words(
            x + width / 2, middle + 14, fitted(what, width - 12, small=True), "on small", anchor="middle"
        )
        return
    drawing.words(x + 10, middle + 4, f"pod {_pod(one)}", "on head")
    drawing.words(x + width - 10, middle + 4, what, "on small", anchor="end")


def _pod(one: Holding) -> str:
    return one.pods[0]


def _words(one: Holding) -> str:
    """What it has, as people name it."""
    if one.kind == "shared":
        return f"a share of {round(1 / one.part)}"
    return "the whole GPU" if one.kind == "whole" else one.tier.removeprefix("mig ")


def _memory_bytes(one: Holding, slices: Sequence[Object]) -> int:
    """What the pod can have; by number a share is so many equal parts of the GPU's memory."""
    if one.memory_bytes is not None:
        return one.memory_bytes
    (capacity,) = (
        device["capacity"]
        for each in slices
        for device in each["spec"].get("devices", ())
        if device["name"] == one.device
    )
    memory, shares = (parse_quantity(capacity[name]["value"]) for name in (MEMORY, SHARES))
    return int(memory / shares * round(one.part * int(shares)))


def _gib(amount_bytes: int) -> str:
    return f"{amount_bytes / 2**30:.1f} GiB"
