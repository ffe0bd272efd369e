"""Draws the MIG layouts of the GPUs of a machine, as bars of memory slices with a box for each partition."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from driver.nvml.mig import Placement
from gpuctl.cli.output import columns
from gpuctl.plan.node_gpus import GIB, ranges
from gpuctl.plan.partitions import NO_MIG, Fit, GpuKind, MigPlan, Offered, Partition, profiles_text

Part = tuple[str, Placement]
"""The text in a box, and the memory slices that the box covers."""

# With the indent and the borders a bar has at most 80 columns.
_COLUMNS = 77
_INDENT = "  "


def partitions_text(plan: MigPlan, layout: str | None) -> str:
    """All kinds of GPUs of the machine, one below the other; ``layout`` as the user wrote it."""
    return "\n".join(line for kind in plan.gpu_kinds for line in (*_kind(kind, layout), "")).rstrip("\n")


def _kind(kind: GpuKind, layout: str | None) -> Iterator[str]:
    addresses = kind.gpus[0] if len(kind.gpus) == 1 else f"{kind.gpus[0]} ... {kind.gpus[-1]}"
    yield f"{kind.product or 'GPU'}: index {ranges(kind.indexes)} ({addresses})"
    slices = kind.memory_slices
    if not slices:
        yield f"  {NO_MIG}"
        return
    if kind.layout is not None:
        yield from _layout(kind.layout, slices, str(layout))
    if kind.offered is not None:
        yield from _offered(kind.offered, slices)
    if kind.layout is None and kind.offered is None:
        yield from (_profiles(kind), "", ruler(slices))
        for name, parts in kind.layouts.items():
            yield from (_sums(name, parts), _bar(parts, slices))


def _profiles(kind: GpuKind) -> str:
    rows = [
        (
            *(one.name, f"{one.memory_bytes / GIB:.1f} GiB", str(one.multiprocessors)),
            *(str(one.most_instances), ", ".join(map(str, one.starts))),
        )
        for one in kind.profiles
    ]
    return columns(("profile", "memory", "SMs", "at most", "starts at memory slice"), rows)


def _layout(fit: Fit, slices: int, layout: str) -> Iterator[str]:
    parts = fit.partitions or fit.nearest
    if fit.problem:
        yield f"{layout} does not fit: {fit.problem}"
    elif not parts:
        yield f"{layout}: no partitions"
    if parts:
        yield _sums(f"{layout} fits" if fit.fits else "nearest that fits", parts)
        yield ruler(slices)
        yield _bar(parts, slices)
    if fit.fits and parts:
        # Without the starts nvidia-smi may leave no room for the last ones.
        places = ",".join(f"{one.profile}:{one.start}" for one in parts)
        yield f"made by an administrator: nvidia-smi mig -i GPU -cgi {places} -C"


def _offered(offer: Offered, slices: int) -> Iterator[str]:
    if offer.whole:
        yield "offered as a whole"
    yield from (f"offered shared, {words}" for words in offer.shared)
    if offer.partitions:
        rule = "any of these that do not overlap" if offer.exclusive else "all of these, and nothing else"
        yield f"offered in partitions: {rule}"
        yield ruler(slices)
    # Places that may overlap need a bar for each profile.
    bars: dict[str, list[Partition]] = {}
    for one in offer.partitions:
        bars.setdefault(one.profile if offer.exclusive else "", []).append(one)
    yield from (_bar(parts, slices) for parts in bars.values())
    yield from (f"not offered: {reason}" for reason in offer.withheld)


def _bar(parts: Sequence[Partition], slices: int) -> str:
    return bar([(one.profile, Placement(one.start, one.size)) for one in parts], slices)


def _sums(name: str, parts: Sequence[Partition]) -> str:
    memory_gib = sum(one.memory_bytes for one in parts) / GIB
    multiprocessors = sum(one.multiprocessors for one in parts)
    what = profiles_text(one.profile for one in parts)
    return f"{name}: {what}; {memory_gib:.1f} GiB, {multiprocessors} SMs together"


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
