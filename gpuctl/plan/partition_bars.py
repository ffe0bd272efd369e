"""Draws the MIG layouts of the GPUs of a machine, as bars of memory slices with a box for each partition."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from driver.kinds.partition.layouts import Placed
from driver.nvml.mig import Placement
from gpuctl.plan.node_gpus import GIB, ranges
from gpuctl.plan.partitions import NO_MIG, Fit, Kind, Offered, profiles_text

Part = tuple[str, Placement]
"""The text in a box, and the memory slices that the box covers."""

# With the indent and the borders a bar has at most 80 columns.
_COLUMNS = 77
_INDENT = "  "


def mig_picture(kinds: Sequence[Kind], layout: str | None) -> RenderableType:
    """All kinds of GPUs of the machine, one below the other; ``layout`` as the user wrote it."""
    return Group(*(part for kind in kinds for part in _kind(kind, layout)))


def _kind(kind: Kind, layout: str | None) -> Iterator[RenderableType]:
    first = kind.gpus[0]
    indexes = ranges(gpu.index for gpu in kind.gpus)
    addresses = str(first.pci) if len(kind.gpus) == 1 else f"{first.pci} ... {kind.gpus[-1].pci}"
    yield Text(f"{first.product_name or 'GPU'}: index {indexes} ({addresses})", style="bold")
    if first.mig is None or not kind.slices:
        yield Text(f"  {NO_MIG}\n")
        return
    if kind.asked is not None and layout is not None:
        yield Text(_asked(kind.asked, kind.slices, layout))
    if kind.offered is not None:
        yield Text(_offered(kind.offered, kind.slices))
    if kind.asked is None and kind.offered is None:
        yield _profiles(kind)
        yield Text("\n".join((ruler(kind.slices), *_layouts(kind), "")))


def _profiles(kind: Kind) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("profile", no_wrap=True)
    for heading in ("memory", "SMs", "at most"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("starts at memory slice")
    mig = kind.gpus[0].mig
    for one in mig.profiles if mig else ():
        profile = one.profile
        memory = f"{profile.memory_bytes / GIB:.1f} GiB"
        numbers = (memory, str(profile.multiprocessors), str(profile.most_instances))
        table.add_row(profile.name, *numbers, ", ".join(str(place.start) for place in one.placements))
    return table


def _layouts(kind: Kind) -> Iterator[str]:
    for name, placed in kind.layouts.items():
        yield f"{name}: {_sums(placed)}"
        yield _bar(placed, kind.slices)


def _asked(found: Fit, slices: int, layout: str) -> str:
    if not found.problem:
        if not found.placed:
            return f"{layout}: no partitions\n"
        lines = [f"{layout} fits: {_sums(found.placed)}", ruler(slices), _bar(found.placed, slices), ""]
        return "\n".join(lines)
    lines = [f"{layout} does not fit: {found.problem}"]
    if found.nearest:
        lines += [f"nearest that fits: {_sums(found.nearest)}", ruler(slices), _bar(found.nearest, slices)]
    return "\n".join([*lines, ""])


def _offered(offer: Offered, slices: int) -> str:
    lines = ["offered as a whole"] if offer.whole else []
    lines += [f"offered shared, {words}" for words in offer.shared]
    if offer.partitions:
        rule = "any of these that do not overlap" if offer.exclusive else "all of these, and nothing else"
        lines += [f"offered in partitions: {rule}", ruler(slices)]
        # Places that may overlap need a bar for each profile.
        if offer.exclusive:
            lines += [bar([(name, place) for place in places], slices) for name, places in offer.partitions]
        else:
            lines.append(
                bar([(name, place) for name, places in offer.partitions for place in places], slices)
            )
    lines += [f"not offered: {reason}" for reason in offer.withheld]
    return "\n".join([*lines, ""])


def _bar(placed: Sequence[Placed], slices: int) -> str:
    return bar([(profile.name, place) for profile, place in placed], slices)


def _sums(placed: Sequence[Placed]) -> str:
    memory_bytes = sum(profile.memory_bytes for profile, _ in placed)
    multiprocessors = sum(profile.multiprocessors for profile, _ in placed)
    names = profiles_text(profile.name for profile, _ in placed)
    return f"{names}; {memory_bytes / GIB:.1f} GiB, {multiprocessors} SMs together"


def ruler(slices: int) -> str:
    """The numbers of the memory slices, each above the beginning of its slice in a bar."""
    cell = _COLUMNS // slices
    return _INDENT + "".join(f" {number}".ljust(cell) for number in range(slices)).rstrip()


def bar(parts: Sequence[Part], slices: int) -> str:
    """Three lines with a box for each part, and dotted boxes for free slices; parts must not overlap."""
    cell = _COLUMNS // slices
    boxes = [(text, cell * place.size - 1) for text, place in _with_free(parts, slices)]
    lines = (
        f"┌{'┬'.join('─' * width for _, width in boxes)}┐",
        f"│{'│'.join(_centred(text, width) for text, width in boxes)}│",
        f"└{'┴'.join('─' * width for _, width in boxes)}┘",
    )
    return "\n".join(_INDENT + line for line in lines)


def _with_free(parts: Sequence[Part], slices: int) -> list[Part]:
    """The parts from left to right, with a part without text for each gap."""
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
