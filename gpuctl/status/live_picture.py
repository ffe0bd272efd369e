"""Draws nodes and their GPUs for a screen: what is amiss first, and what did not fit is said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from gpuctl.cli.printable import in_one_line
from gpuctl.status.bars import WORDS, bar, cell, legend

if TYPE_CHECKING:
    from gpuctl.fleet.devices import Kind
    from gpuctl.fleet.gpus import GpuState, Holding
    from gpuctl.fleet.nodes import NodeView

_BAR = 24
_FRAME_LINES = 4
"""The sum above, an empty line, and two lines below."""


def live_picture(views: Sequence[NodeView], width: int, height: int, note: str = "") -> Text:
    """As many lines as the screen has, none wider than it; ``note`` stands in the last one.

    Each GPU has a line while all of them fit, else each node has one. Nodes on which something is amiss come
    first, the others by name.
    """
    ordered = sorted(views, key=lambda one: not one.is_amiss)
    room = max(1, height - _FRAME_LINES)
    in_full = sum(1 + len(_node_notes(one)) + len(one.gpus) for one in ordered) <= room
    blocks = [_block(one) if in_full else [_node_line(one)] for one in ordered]
    lines = [line for block in blocks for line in block]
    if len(lines) > room:
        kept = room - 1
        lines = [*lines[:kept], _left_out(ordered[kept:])]
    if not views:
        lines = [Text("no node publishes GPUs of this driver")]
    foot = [Text(), legend(), Text(note, "yellow") if note else Text("Ctrl-C ends it", "dim")]
    picture = Text("\n").join([sum_of(views), *lines, *foot][:height])
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
    sick = sum(gpu.is_sick for gpu in gpus)
    text = Text().append(f"{_counted(len(views), 'node')}, {_counted(len(gpus), 'GPU')}: ", "bold")
    text.append(f"{len(held)} held ({_kinds(held)}), {len(gpus) - len(held)} free" if held else "all free")
    if gpus:
        text.append(f", {100 * sum(gpu.used for gpu in gpus) / len(gpus):.0f} % taken")
    text.append(f", {sick} sick", "bold red") if sick else text.append(", none sick", "green")
    return text


def _kinds(gpus: Sequence[GpuState]) -> str:
    counts: Counter[Kind] = Counter()
    for gpu in gpus:
        counts.update({one.kind for one in gpu.holdings if not one.looks_on})
    return ", ".join(f"{counts[kind]} {word}" for kind, word in WORDS.items() if counts[kind])


def _block(view: NodeView) -> list[Text]:
    """A node with a line for each GPU, and what is amiss of the node as a whole."""
    head = Text().append(view.name, "bold")
    told = ", ".join(filter(None, (view.state.product, _driver(view))))
    lines = [head.append(f"  {told}" if told else ""), *_node_notes(view)]
    return [*lines, *(_gpu_line(gpu) for gpu in view.gpus)]


def _driver(view: NodeView) -> str:
    return f"driver {view.state.driver_version}" if view.state.driver_version else ""


def _node_notes(view: NodeView) -> list[Text]:
    problem = view.state.pool_problem
    return [Text(f"  nothing of its pool can be allocated: {problem}", "red")] if problem else []


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
    """Who holds it, and what: ``team/train (pod train-0): mig 1g.10gb``."""
    pods = f" (pod {', '.join(one.pods)})" if one.pods else ""
    what = "looks on" if one.looks_on else ", ".join(filter(None, (one.tier, one.taken)))
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
    keys = {str(one.taint).removeprefix("gpu.nvidia.com/"): None for gpu in view.gpus for one in gpu.taints}
    yield from keys


def _left_out(views: Sequence[NodeView]) -> Text:
    gpus = [gpu for view in views for gpu in view.gpus]
    held, sick = sum(gpu.used > 0 for gpu in gpus), sum(gpu.is_sick for gpu in gpus)
    words = f"and {_counted(len(views), 'node')} more: {_counted(len(gpus), 'GPU')}, {held} held, {sick} sick"
    return Text(words, "italic")


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
