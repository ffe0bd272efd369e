"""Draws the result of a simulation for people: pods, why they wait, devices, GPU-hours and cost."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpuctl.simulate.results import Cost, Course, GroupResult, Result


def picture(result: Result, cost: Cost | None, seconds: float) -> RenderableType:
    """The whole result; ``seconds`` is how long it took to work it out."""
    placed = sum(group.placed for group in result.groups)
    speed = f"{placed:,} placements in {seconds:.1f} s ({placed / max(seconds, 1e-9):,.0f} a second)"
    tables: list[RenderableType] = [_pods(result), *_whys(result), _tiers(result), _gpus(result)]
    if result.course is not None:
        tables[1:1] = [_waits(result)]
        tables.append(_use(result.course))
    if result.classes:
        tables.append(_classes(result))
    return Group(*tables, Text("\n".join([*_fragments(result), *_hours(result), *_costs(cost), speed])))


def mean_wait(group: GroupResult) -> float | None:
    """The mean wait of the pods that were placed, in simulated seconds."""
    return fmean(group.waits_seconds) if group.waits_seconds else None


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    return table


def _pods(result: Result) -> RenderableType:
    table = _table("Pods", "group", "pods", "placed", "waiting", "mean wait", "longest wait")
    for group in result.groups:
        longest = max(group.waits_seconds, default=None)
        waits = ("-" if wait is None else f"{wait:,.0f} s" for wait in (mean_wait(group), longest))
        table.add_row(group.name, *(f"{n:,}" for n in (group.pods, group.placed, group.waiting)), *waits)
    return table


def _waits(result: Result) -> RenderableType:
    title = f"Waits; at most {result.most_waiting:,} pods waited at one time"
    table = _table(title, "group", "median", "95 % at most", "longest")
    for group in result.groups:
        waits = (group.median_wait, group.p95_wait, max(group.waits_seconds, default=None))
        table.add_row(group.name, *("-" if wait is None else f"{wait:,.0f} s" for wait in waits))
    return table


def _use(course: Course) -> RenderableType:
    """The GPUs that each class had, and the mean of fragmentation."""
    fragmented = fmean(course.fragmentation) if course.fragmentation else 0.0
    title = f"GPUs by class; on average {fragmented:.1%} of the free capacity was on GPUs in partial use"
    table = _table(title, "class", "GPU-hours", "of all", "at most")
    whole = course.all_gpus * course.ended_seconds / 3600
    for name, hours in course.gpu_hours.items():
        table.add_row(name, f"{hours:,.1f}", _percent(hours, whole), f"{course.most_gpus[name]:,.1f} GPUs")
    return table


def _whys(result: Result) -> Iterator[RenderableType]:
    """For each group that waits or had to wait, what is or was in the way."""
    for group in result.groups:
        if group.error:
            yield Text(f"{group.name} can never be placed: {group.error}")
        elif group.why:
            lines = [f"why {group.name} {'waits' if group.waiting else 'had to wait'}, {_moment(group)}:"]
            for why in group.why:
                devices = f"{why.devices:,} devices on " if why.devices else ""
                where = f"{devices}{why.nodes:,} node{'s' * (why.nodes != 1)}: " if why.nodes else ""
                lines.append(f"  - {where}{why.reason}")
            yield Text("\n".join(lines))


def _moment(group: GroupResult) -> str:
    return "at the end" if group.waiting else f"first at {group.why_seconds:,.0f} s"


def _tiers(result: Result) -> RenderableType:
    headings = ("tier", "devices", "in use", "free", "at most in use", "device-hours in use", "idle")
    table = _table("Devices at the end", *headings)
    for tier, found in sorted(result.tiers.items()):
        numbers = (found.devices, found.allocated, found.free, found.most_allocated)
        hours = (found.hours_in_use, found.hours_idle)
        table.add_row(tier, *(f"{n:,}" for n in numbers), *("-" if n is None else f"{n:,.1f}" for n in hours))
    return table


def _gpus(result: Result) -> RenderableType:
    table = _table("GPUs", "product", "GPUs", "in use", "GPU-hours", "in use", "idle", "utilisation")
    for product, found in result.gpus.items():
        hours = (found.hours, found.hours_in_use, found.hours_idle)
        used = _percent(found.hours_in_use, found.hours)
        table.add_row(product, f"{found.gpus:,}", f"{found.in_use:,}", *(f"{n:,.1f}" for n in hours), used)
    return table


def _classes(result: Result) -> RenderableType:
    table = _table("Waited for", "class", "devices at the end", "device-hours")
    for name, found in result.classes.items():
        table.add_row(name, f"{found.waiting:,}", f"{found.hours_waited:,.1f}")
    return table


def _fragments(result: Result) -> Iterator[str]:
    for one in result.fragments:
        if one.free:
            yield (
                f"of {one.free:,} free whole GPUs, {one.usable:,} can serve pods that want {one.gpus} on one"
                " node"
            )


def _hours(result: Result) -> Iterator[str]:
    """How long the simulation lasted, and how much of it GPUs were in use and busy."""
    if not result.ended_seconds:
        yield "everything happened at one moment: --hours says over how long to count GPU-hours"
        return
    used = _percent(result.hours_in_use, result.gpu_hours)
    yield f"over {result.ended_seconds / 3600:,.1f} hours {used} of the GPU-hours were in use"
    if result.busy_hours is not None:
        busy = _percent(result.busy_hours, result.gpu_hours)
        yield f"{busy} of the GPU-hours were work, according to the workload"


def _costs(cost: Cost | None) -> Iterator[str]:
    if cost is not None:
        work = (
            f", {cost.without_work:,.2f} for GPU-hours without work" if cost.without_work is not None else ""
        )
        yield f"cost: {cost.total:,.2f}, of it {cost.idle:,.2f} for unused GPUs{work}"


def _percent(part: float, whole: float) -> str:
    """A part of a whole, in percent."""
    return f"{part / whole:.1%}" if whole else "-"
