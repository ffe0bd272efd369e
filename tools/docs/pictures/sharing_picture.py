"""The picture of how shares divide a GPU: its memory, and its multiprocessors over time.

What the claims get is what the scheduler allocates of what the driver publishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes_rules.quantity import parse_quantity
from tools.docs.pictures.node_pictures import ALL_TIERS, MACHINE, Wanted, claimed, published
from tools.svg.drawing import Drawing

Object = dict[str, Any]

_WIDTH, _MARGIN = 960, 16
_BAR, _HEIGHT, _ROW = 610, 84, 178
_CHART_X = _MARGIN + _BAR + 50
_CHART = _WIDTH - _MARGIN - _CHART_X
_TURNS = 9
_LEAST_HEIGHT = 12
"""Parts that are less high have no words in them."""

_MIB = 1 << 20
_MIB_PER_GIB = 1024
_BY_NUMBER = ALL_TIERS.with_name("mps.yaml")
_BY_MEMORY = ALL_TIERS.with_name("memory-shares.yaml")


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to share a GPU: the pods that come, and what it does, in words.

    ``in_turns``: the pods take turns with the multiprocessors, and nothing limits their memory.
    """

    name: str
    words: str
    config: Path
    pods: tuple[Wanted, ...]
    in_turns: bool = False


_WAYS = (
    _Way(
        "MPS, four shares of a GPU (class shared-mps)",
        "The pods compute at the same time. MPS limits the memory and the multiprocessors of each.",
        _BY_NUMBER,
        (
            Wanted("lab", "notebook-0", "shared-mps"),
            Wanted("lab", "notebook-1", "shared-mps", (("shares", "2"),)),
        ),
    ),
    _Way(
        "MPS, by memory (class gpu.nvidia.com, on fractional GPUs)",
        "A pod asks for memory, which is rounded up to steps of 4 GiB: chat for 14, search for 30 GiB.",
        _BY_MEMORY,
        (
            Wanted("shop", "chat", "gpu.nvidia.com", (("memory", "14Gi"),)),
            Wanted("shop", "search", "gpu.nvidia.com", (("memory", "30Gi"),)),
        ),
    ),
    _Way(
        "Time-slicing, four shares of a GPU (class shared-timesliced)",
        "The pods take turns. The scheduler counts shares, but nothing keeps a pod from using more memory.",
        ALL_TIERS,
        tuple(Wanted("ci", f"test-{number}", "shared-timesliced") for number in range(3)),
        in_turns=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Share:
    """What a pod has of a GPU: MiB of memory, percent of the multiprocessors, and both in words."""

    pod: str
    memory_mib: int
    percentage: int
    taken: str


@dataclass(frozen=True, slots=True)
class Division:
    """A GPU and its shares. Of ``all_mib`` of memory, ``offered_mib`` are divided among shares."""

    all_mib: int
    offered_mib: int
    shares: tuple[Share, ...]

    @property
    def free_mib(self) -> int:
        """The memory that is left for other shares."""
        return self.offered_mib - sum(one.memory_mib for one in self.shares)


def division(config: Path, pods: Sequence[Wanted]) -> Division:
    """What these pods get of one GPU of a node with this configuration."""
    slices = published(MACHINE, config, gpus=1)
    (gpu,) = claimed(slices, pods).gpus
    (device,) = {one.device for one in gpu.takers}
    offered, shareable = (
        _memory_mib(slices, device),
        _memory_mib(published(MACHINE, ALL_TIERS, gpus=1), "-mps-"),
    )
    shares = []
    for one in gpu.takers:
        # As the plugin limits MPS clients: by the number of shares, or by the part of the memory.
        memory = int(one.part * offered)
        by_number = one.memory_bytes is None
        percentage = int(100 * one.part) if by_number else 100 * memory // shareable
        shares.append(Share(one.claim.rpartition("/")[2], memory, percentage, one.taken))
    return Division(_memory_mib(published(MACHINE, gpus=1), "gpu-"), offered, tuple(shares))


def _memory_mib(slices: Sequence[Object], name: str) -> int:
    """The memory of the first device with this in its name."""
    devices = [device for one in slices for device in one["spec"].get("devices", ())]
    found = next(one for one in devices if name in one["name"])
    return int(parse_quantity(found["capacity"]["memory"]["value"])) // _MIB


def sharing() -> str:
    """A row for each way: the memory of the GPU, and who computes when."""
    divisions = [(way, division(way.config, way.pods)) for way in _WAYS]
    drawing = Drawing(
        _WIDTH,
        "How shares divide a GPU",
        " ".join(f"{way.name}. {way.words} {_described(way, one)}" for way, one in divisions),
    )
    drawing.words(_MARGIN, 26, "Memory of one H100", "words head")
    drawing.words(_CHART_X, 26, "Multiprocessors over time", "words head")
    y = 40.0
    for way, one in divisions:
        drawing.words(_MARGIN, y + 18, way.name, "words head")
        drawing.words(_MARGIN, y + 37, way.words, "faint")
        _memory(drawing, way, one, y + 48)
        (_turns if way.in_turns else _parts)(drawing, one, y + 48)
        y += _ROW
    return drawing.text(y + 2)


def _described(way: _Way, one: Division) -> str:
    held = ", ".join(f"{share.pod} {_label(way, share)}" for share in one.shares)
    return f"{held}; free {_gib(one.free_mib)}."


def _label(way: _Way, share: Share) -> str:
    return "has 1 share" if way.in_turns else f"has {_gib(share.memory_mib)}"


def _gib(mib: int) -> str:
    return f"{mib / _MIB_PER_GIB:.1f} GiB".replace(".0 GiB", " GiB")


def _memory(drawing: Drawing, way: _Way, one: Division, y: float) -> None:
    """The memory of the GPU as a bar: the shares, what is free, and what is never divided."""
    scale = _BAR / one.all_mib
    x = float(_MARGIN)
    for share in one.shares:
        width = share.memory_mib * scale
        drawing.box(x, y, width - 1, _HEIGHT, "shared", hint=f"{share.pod}: {share.taken}")
        drawing.words(x + 8, y + 38, share.pod, "on head")
        drawing.words(x + 8, y + 57, "1 share" if way.in_turns else _gib(share.memory_mib), "on")
        x += width
    width = one.free_mib * scale
    drawing.box(x, y, width - 1, _HEIGHT, "free")
    drawing.words(x + 8, y + 38, "free", "words head")
    drawing.words(x + 8, y + 57, "1 share" if way.in_turns else _gib(one.free_mib))
    x += width
    drawing.box(x, y, _MARGIN + _BAR - x, _HEIGHT, "excluded", round_=1)
    rest = one.all_mib - one.offered_mib
    because = "less than a step, or reserved" if rest > _MIB_PER_GIB else "reserved"
    words = f"{_gib(rest)} is not divided: {because} by NVIDIA's driver"
    drawing.words(_MARGIN + _BAR, y + _HEIGHT + 16, words, "faint small", anchor="end")


def _parts(drawing: Drawing, one: Division, y: float) -> None:
    """All compute at once, each with its part of the multiprocessors."""
    drawing.box(_CHART_X, y, _CHART, _HEIGHT, "free")
    top = y
    for share in one.shares:
        height = share.percentage / 100 * _HEIGHT
        drawing.box(_CHART_X, top, _CHART, height - 1, "shared", round_=2, hint=share.pod)
        if height >= _LEAST_HEIGHT:
            middle = top + height / 2 + 3
            drawing.words(_CHART_X + 8, middle, f"{share.pod}: at most {share.percentage} %", "on small")
        top += height


def _turns(drawing: Drawing, one: Division, y: float) -> None:
    """One after the other, each with all multiprocessors."""
    width = _CHART / _TURNS
    for turn in range(_TURNS):
        share = one.shares[turn % len(one.shares)]
        x = _CHART_X + turn * width
        drawing.box(x, y, width - 1, _HEIGHT, "shared", round_=2, hint=share.pod)
        middle = x + width / 2
        drawing.words(middle, y + 38, share.pod.partition("-")[0], "on small", anchor="middle")
        drawing.words(middle, y + 52, share.pod.rpartition("-")[2], "on small", anchor="middle")
