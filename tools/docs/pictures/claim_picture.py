"""The picture of how a claim becomes a GPU: who reads and writes what, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tools.svg.drawing import LINE, Drawing

_WIDTH, _MARGIN = 960, 16
_BADGE = 20
_HEAD = 5
"""How long the two lines of an arrow's head are, in either direction."""


@dataclass(frozen=True, slots=True)
class _Box:
    """A program or an object, with a name and a line about it; ``ours`` is a program of this driver."""

    x: float
    y: float
    width: float
    height: float
    name: str
    about: str
    ours: bool = False


_BOXES = (
    _Box(16, 92, 112, 56, "You", "kubectl apply"),
    _Box(196, 80, 150, 58, "Pod", "names its claim"),
    _Box(196, 160, 150, 58, "ResourceClaim", "asks for a GPU"),
    _Box(530, 80, 156, 58, "DeviceClass", "selects devices"),
    _Box(530, 160, 156, 58, "ResourceSlices", "the devices of nodes"),
    _Box(776, 96, 168, 94, "Scheduler", "picks node and devices"),
    _Box(196, 330, 150, 56, "kubelet", "starts the pod"),
    _Box(430, 330, 190, 56, "kubelet plugin", "makes devices usable", ours=True),
    _Box(706, 330, 216, 56, "controller", "publishes the GPUs", ours=True),
    _Box(196, 470, 150, 56, "containerd", "makes the container"),
    _Box(430, 470, 190, 56, "CDI spec", "device nodes, files"),
    _Box(706, 470, 216, 56, "GPU", "whole, partition or share"),
    _Box(196, 596, 150, 56, "Container", "sees its GPU only"),
)

_ARROWS: Sequence[tuple[str, tuple[tuple[float, float], ...]]] = (
    ("1", ((814, 330), (814, 264), (608, 264), (608, 218))),
    ("2", ((128, 120), (196, 120))),
    ("", ((72, 148), (72, 189), (196, 189))),
    ("3", ((686, 112), (776, 112))),
    ("", ((686, 189), (742, 189), (742, 174), (776, 174))),
    ("4", ((776, 149), (400, 149), (400, 112), (346, 112))),
    ("", ((400, 149), (400, 189), (346, 189))),
    ("5", ((271, 236), (271, 330))),
    ("6", ((346, 358), (430, 358))),
    ("7", ((525, 330), (525, 236))),
    ("8", ((620, 358), (663, 358), (663, 498), (706, 498))),
    ("9", ((525, 386), (525, 470))),
    ("10", ((271, 386), (271, 470))),
    ("11", ((430, 498), (346, 498))),
    ("12", ((271, 526), (271, 596))),
    ("", ((346, 624), (814, 624), (814, 526))),
)
"""The arrows by their steps, each a path with its head at the end. A step without a number belongs to the one
before."""

_BADGES: dict[str, tuple[float, float]] = {
    "1": (711, 264),
    "2": (162, 120),
    "3": (731, 112),
    "4": (464, 149),
    "5": (271, 270),
    "6": (388, 358),
    "7": (525, 270),
    "8": (663, 428),
    "9": (525, 428),
    "10": (271, 428),
    "11": (388, 498),
    "12": (271, 561),
}
"""The middle of each step's number."""

STEPS = {
    "1": "The controller publishes every form of each GPU as a device.",
    "2": "You create a pod and its claim, or a template for the claim.",
    "3": "The scheduler reads which devices there are, and what is taken.",
    "4": "It writes devices into the claim, and binds the pod to a node.",
    "5": "The kubelet of that node learns of the pod.",
    "6": "It calls the plugin: NodePrepareResources.",
    "7": "The plugin reads from the claim which devices were allocated.",
    "8": "It creates the partition or the share on the GPU.",
    "9": "It writes a CDI spec, and returns the names of CDI devices.",
    "10": "The kubelet has containerd create the container with them.",
    "11": "containerd reads the CDI spec.",
    "12": "It starts the container with these device nodes and files.",
}
_END = (
    "When the pod has ended, the kubelet calls NodeUnprepareResources: the plugin removes what it made in "
    "steps 8 and 9."
)


def claim() -> str:
    """The objects and programs with the steps between them, and the steps in words below."""
    drawing = Drawing(
        _WIDTH,
        "How a claim becomes a GPU",
        " ".join([*(f"{number}. {words}" for number, words in STEPS.items()), _END]),
    )
    drawing.words(_MARGIN, 26, "How a claim becomes a GPU", "words head")
    _legend(drawing)
    for left, upper, width, height, name in ((176, 44, 528, 192, "API server"), (176, 292, 768, 380, "Node")):
        drawing.box(left, upper, width, height, "card", round_=6)
        drawing.words(left + 12, upper + 22, name, "faint")
    for number, points in _ARROWS:
        drawing.curve(_path(points), "edge", width=1.5, hint=STEPS.get(number, ""))
    for box in _BOXES:
        _box(drawing, box)
    for number, (x, y) in _BADGES.items():
        _badge(drawing, number, x, y)
    y = _steps(drawing, 706)
    drawing.words(_MARGIN, y + 12, _END)
    return drawing.text(y + 28)


def _legend(drawing: Drawing) -> None:
    drawing.box(706, 14, 14, 14, "whole", round_=2)
    drawing.words(726, 26, "this driver", "faint")
    drawing.box(816, 14, 14, 14, "free", round_=2)
    drawing.words(836, 26, "everything else", "faint")


def _box(drawing: Drawing, box: _Box) -> None:
    middle = box.x + box.width / 2
    top = box.y + box.height / 2 - 4
    drawing.box(box.x, box.y, box.width, box.height, "whole" if box.ours else "free", hint=box.about)
    drawing.words(middle, top, box.name, "on head" if box.ours else "words head", anchor="middle")
    drawing.words(middle, top + LINE, box.about, "on" if box.ours else "words", anchor="middle")


def _badge(drawing: Drawing, number: str, x: float, y: float) -> None:
    drawing.box(x - _BADGE / 2, y - _BADGE / 2, _BADGE, _BADGE, "machine", round_=10)
    drawing.words(x, y + 4, number, "on small", anchor="middle")


def _path(points: Sequence[tuple[float, float]]) -> str:
    """A line through the points, with an arrow's head at the end."""
    (x0, y0), (x1, y1) = points[-2:]
    # The sign of the direction in which the last part runs; one of both is 0.
    dx, dy = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
    steps = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
    for side in (-1, 1):
        back_x, back_y = -dx * _HEAD + side * dy * _HEAD, -dy * _HEAD + side * dx * _HEAD
        steps += f"M{x1 + back_x:g} {y1 + back_y:g}L{x1:g} {y1:g}"
    return steps


def _steps(drawing: Drawing, y: float) -> float:
    """The steps in words, in two columns; returns the place below them."""
    half = (len(STEPS) + 1) // 2
    for place, (number, words) in enumerate(STEPS.items()):
        column, line = divmod(place, half)
        x, top = _MARGIN + column * _WIDTH / 2, y + line * (LINE + 8)
        _badge(drawing, number, x + _BADGE / 2, top)
        drawing.words(x + _BADGE + 8, top + 4, words)
    return y + half * (LINE + 8)
