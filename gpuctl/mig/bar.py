"""Draws the memory slices of a GPU as a bar of boxes, one for each partition, in at most 80 columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from driver.nvml.mig import Placement

Part = tuple[str, Placement]
"""What stands in a box, and the memory slices that the box lies over."""

_COLUMNS = 77
_INDENT = "  "


def ruler(slices: int) -> str:
    """The numbers of the memory slices, each above the place where its slice begins in a bar."""
    cell = _COLUMNS // slices
    return _INDENT + "".join(f" {number}".ljust(cell) for number in range(slices)).rstrip()


def bar(parts: Sequence[Part], slices: int) -> str:
    """Three lines: the boxes of the parts, which do not overlap, and dotted ones where nothing lies."""
    cell = _COLUMNS // slices
    boxes = [(text, cell * place.size - 1) for text, place in _with_free(parts, slices)]
    lines = (
        f"┌{'┬'.join('─' * width for _, width in boxes)}┐",
        f"│{'│'.join(_centred(text, width) for text, width in boxes)}│",
        f"└{'┴'.join('─' * width for _, width in boxes)}┘",
    )
    return "\n".join(_INDENT + line for line in lines)


def _with_free(parts: Sequence[Part], slices: int) -> list[Part]:
    """The parts from left to right, with one without a name for each gap."""
    found: list[Part] = []
    at = 0
    for text, place in sorted(parts, key=lambda part: part[1].start):
        if place.start > at:
            found.append(("", Placement(at, place.start - at)))
        found.append((text, place))
        at = place.start + place.size
    if at < slices:
        found.append(("", Placement(at, slices - at)))
    return found


def _centred(text: str, width: int) -> str:
    if not text:
        return "·" * width
    if len(text) > width:
        text = re.sub(r"\.\d+gb", "", text)  # 1g.10gb+me becomes 1g+me
    return text[:width].center(width)
