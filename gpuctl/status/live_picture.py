"""Draws nodes and their GPUs for a terminal, each GPU as a bar: what is amiss first, the rest as it fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text

from gpuctl.cli.output import in_one_line
from gpuctl.fleet.devices import Kind
from gpuctl.fleet.gpus import GpuState, Holding
from gpuctl.fleet.nodes import NodeView

_BAR = 24
_MOST_PROBLEMS = 4
_FRAME_LINES = 4
"""The sum above, an empty line, and two lines below."""

_SIGNS: Mapping[Kind, tuple[str, str]] = {
    "whole": ("█", "blue"),
    "partition": ("▓", "magenta"),
    "shared": ("▒", "cyan"),
    "machine": ("▚", "yellow"),
}
"""The sign of each kind, readable without colours, and its colour."""

_FREE = "·"
WORDS: Mapping[Kind, str] = {
    "whole": "whole",
    "partition": "partition",
    "shared": "share",
    "machine": "virtual machine",
}


def live_picture(
    views: Sequence[NodeView], width: int, height: int, note: str = "", problems: Sequence[str] = ()
) -> Text:
    """The picture for a screen of this size; ``note`` is in the last line.

    ``problems`` are what is wrong that the nodes do not show; they come first.
    Each GPU has a line if all of them fit, else each node has one. Nodes on which something is amiss come
    first, the others by name.
    """
    ordered = sorted(views, key=lambda one: not one.is_amiss)
    above = [sum_of(views), *(Text(in_one_line(one), "red") for one in problems[:_MOST_PROBLEMS])]
    room = max(1, height - _FRAME_LINES - len(above) + 1)
    in_full = sum(1 + len(_node_notes(one)) + len(one.gpus) for one in ordered) <= room
    blocks = [_block(one) if in_full else [_node_line(one)] for one in ordered]
    lines = [line for block in blocks for line in block]
    if len(lines) > room:
        kept = room - 1
        lines = [*lines[:kept], _left_out(ordered[kept:])]
    if not views:
        lines = [Text("no node publishes GPUs of this driver")]
    foot = [Text(), _legend(), Text(note, "yellow") if note else Text("Ctrl-C ends it", "dim")]
    picture = Text("\n").join([*above, *lines, *foot][:height])
    picture.no_wrap = True
    return _cut(picture, width)


def _cut(picture: Text, width: int) -> Text:
    lines = picture.split("\n", allow_blank=True)
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines)


def sum_of(views: Sequence[NodeView]) -> Text:
    """The cluster in one line."""
    gpus = [gpu for view in views for gpu in view.gpus]
    held = [gpu for gpu in gpus if gpu.used > 0]
    unavailable = sum(gpu.blocked for gpu in gpus if gpu.used == 0)
    sick = sum(gpu.is_sick for gpu in gpus)
    free = len(gpus) - len(held) - unavailable
    text = Text().append(f"{_counted(len(views), 'node')}, {_counted(len(gpus), 'GPU')}", "bold")
    if not gpus:
        return text
    text.append(": ").append(f"{len(held)} held ({_kinds(held)}), " if held else "")
    text.append("all free" if free == len(gpus) else f"{free} free")
    text.append(f", {unavailable} unavailable" if unavailable else "")
    if held:
        text.append(f", {100 * sum(gpu.used for gpu in gpus) / len(gpus):.0f} % taken")
    text.append(f", {sick} sick", "bold red") if sick else text.append(", none sick", "green")
    return text


def _kinds(gpus: Sequence[GpuState]) -> str:
    counts: Counter[Kind] = Counter()
    for gpu in gpus:
        counts.update({one.kind for one in gpu.takers})
    return ", ".join(f"{counts[kind]} {word}" for kind, word in WORDS.items() if counts[kind])


def _block(view: NodeView) -> list[Text]:
    """A node with a line for each GPU, and what is amiss on the whole node."""
    head = Text().append(view.name, "bold")
    about = ", ".join(filter(None, (view.state.product, _driver(view))))
    lines = [head.append(f"  {about}" if about else ""), *_node_notes(view)]
    return [*lines, *(_gpu_line(gpu) for gpu in view.gpus)]


def _driver(view: NodeView) -> str:
    return f"driver {view.state.driver_version}" if view.state.driver_version else ""


def _node_notes(view: NodeView) -> list[Text]:
    problem = view.state.pool_problem
    words = [f"no device of its pool can be allocated: {problem}" if problem else "", view.state.missing]
    return [Text(f"  {one}", "red") for one in words if one]


def _gpu_line(gpu: GpuState) -> Text:
    line = Text(f"  {gpu.label:>3} ").append_text(bar(gpu, _BAR))
    line.append(f" {100 * gpu.used:3.0f} % ")
    for one in gpu.taints[:1]:
        style = "bold red" if gpu.is_sick else "yellow"
        where = "" if one.devices == one.of_gpu else f" on {one.devices} of {one.of_gpu} devices"
        line.append(f" {str(one.taint).removeprefix('gpu.nvidia.com/')}{where} ", style)
    if gpu.holdings:
        line.append(" " + "; ".join(map(holder, gpu.holdings)))
    elif not gpu.taints:
        line.append(" " + ", ".join(f"{form.devices} x {form.tier}" for form in gpu.forms), "dim")
    return line


def holder(one: Holding) -> str:
    """The claim, its pods, and what it holds: ``team/train (pod train-0): mig 1g.10gb``."""
    pods = f" (pod {', '.join(one.pods)})" if one.pods else ""
    what = "admin access" if one.admin_access else ", ".join(filter(None, (one.tier, one.taken)))
    trouble = f" NOT READY: {in_one_line(one.trouble)}" if one.trouble else ""
    return f"{one.claim}{pods}: {what}{trouble}"


def _node_line(view: NodeView) -> Text:
    """A node in one line: a character for each GPU, how many are held, and what is amiss."""
    line = Text().append(f"{view.name:<24} ", "bold")
    for gpu in view.gpus:
        line.append_text(cell(gpu))
    held = sum(gpu.used > 0 for gpu in view.gpus)
    line.append(f"  {held} of {len(view.gpus)} held  ").append(view.state.product or "", "dim")
    for words in _amiss(view):
        line.append(f"  {words}", "red")
    return line


def _amiss(view: NodeView) -> Iterator[str]:
    if view.state.pool_problem:
        yield view.state.pool_problem
    if view.state.missing:
        yield view.state.missing
    keys = {str(one.taint).removeprefix("gpu.nvidia.com/"): None for gpu in view.gpus for one in gpu.taints}
    yield from keys


def _left_out(views: Sequence[NodeView]) -> Text:
    gpus = [gpu for view in views for gpu in view.gpus]
    held, sick = sum(gpu.used > 0 for gpu in gpus), sum(gpu.is_sick for gpu in gpus)
    words = f"and {_counted(len(views), 'node')} more: {_counted(len(gpus), 'GPU')}, {held} held, {sick} sick"
    return Text(words, "italic")


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def bar(gpu: GpuState, width: int) -> Text:
    """The GPU's holders from left to right; each has at least one character."""
    cells: list[Kind | None] = [None] * width
    for one in (one for one in gpu.takers if one.start is not None):
        _fill(cells, one.kind, *_span(one.start or 0, one.size or 1, gpu.memory_slices, width))
    at = 0
    for one in (one for one in gpu.takers if one.start is None):
        size = max(1, round(one.part * width))
        _fill(cells, one.kind, at, at + size)
        at += size
    text = Text()
    for kind in cells:
        sign, colour = _SIGNS[kind] if kind else (_FREE, "dim")
        text.append(sign, colour)
    return text


def cell(gpu: GpuState) -> Text:
    """The GPU in one character: the kind that has most of it; ``!`` if it is sick."""
    if gpu.is_sick:
        return Text("!", "bold red")
    parts: dict[Kind, float] = {}
    for one in gpu.takers:
        parts[one.kind] = parts.get(one.kind, 0.0) + one.part
    if not parts:
        return Text(_FREE, "dim")
    sign, colour = _SIGNS[max(parts, key=lambda kind: parts[kind])]
    return Text(sign, colour)


def _legend() -> Text:
    """What the signs mean."""
    text = Text()
    for kind, (sign, colour) in _SIGNS.items():
        text.append(f"{sign} ", colour).append(f"{WORDS[kind]}   ")
    return text.append(f"{_FREE} ", "dim").append("free   ").append("! ", "bold red").append("sick")


def _span(start: int, size: int, slices: int, width: int) -> tuple[int, int]:
    """The characters of a partition in its place among the memory slices."""
    first = start * width // max(slices, 1)
    return first, max(first + 1, (start + size) * width // max(slices, 1))


def _fill(cells: list[Kind | None], kind: Kind, first: int, end: int) -> None:
    for position in range(min(first, len(cells) - 1), min(end, len(cells))):
        cells[position] = kind
