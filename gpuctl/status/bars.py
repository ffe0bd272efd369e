"""How full a GPU is, as a bar of characters: each kind of holder has a sign and a colour of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from gpuctl.fleet.devices import Kind
    from gpuctl.fleet.gpus import GpuState

SIGNS: Mapping[Kind, tuple[str, str]] = {
    "whole": ("█", "blue"),
    "partition": ("▓", "magenta"),
    "shared": ("▒", "cyan"),
    "machine": ("▚", "yellow"),
}
"""What stands for each kind, readable without colours, and its colour."""

FREE = "·"
WORDS: Mapping[Kind, str] = {
    "whole": "whole",
    "partition": "partition",
    "shared": "share",
    "machine": "virtual machine",
}


def bar(gpu: GpuState, width: int) -> Text:
    """The GPU's holders from left to right; who holds anything has one character at least."""
    cells: list[Kind | None] = [None] * width
    if any(one.start is not None for one in gpu.holdings):
        for one in (one for one in gpu.holdings if one.start is not None and not one.looks_on):
            _fill(cells, one.kind, *_span(one.start or 0, one.size or 1, gpu.memory_slices, width))
    at = 0
    for one in (one for one in gpu.holdings if one.start is None and not one.looks_on):
        size = max(1, round(one.part * width))
        _fill(cells, one.kind, at, at + size)
        at += size
    text = Text()
    for kind in cells:
        sign, colour = SIGNS[kind] if kind else (FREE, "dim")
        text.append(sign, colour)
    return text


def cell(gpu: GpuState) -> Text:
    """The GPU in one character: the kind that has most of it; ``!`` where it is sick."""
    if gpu.is_sick:
        return Text("!", "bold red")
    parts: dict[Kind, float] = {}
    for one in gpu.holdings:
        if not one.looks_on:
            parts[one.kind] = parts.get(one.kind, 0.0) + one.part
    if not parts:
        return Text(FREE, "dim")
    sign, colour = SIGNS[max(parts, key=lambda kind: parts[kind])]
    return Text(sign, colour)


def legend() -> Text:
    """What the signs mean."""
    text = Text()
    for kind, (sign, colour) in SIGNS.items():
        text.append(f"{sign} ", colour).append(f"{WORDS[kind]}   ")
    return text.append(f"{FREE} ", "dim").append("free   ").append("! ", "bold red").append("sick")


def _span(start: int, size: int, slices: int, width: int) -> tuple[int, int]:
    """The characters of a partition in its place among the memory slices."""
    first = start * width // max(slices, 1)
    return first, max(first + 1, (start + size) * width // max(slices, 1))


def _fill(cells: list[Kind | None], kind: Kind, first: int, end: int) -> None:
    for position in range(min(first, len(cells) - 1), min(end, len(cells))):
        cells[position] = kind
