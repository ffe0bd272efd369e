"""Says the result of a simulation for people: pods, why they wait, and what is in use and free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuctl.cli.output import columns
from gpuctl.simulate.results import GroupResult, Simulation


def picture(result: Simulation) -> str:
    """The whole result."""
    pods = [(one.name, one.pods, one.placed, one.waiting, one.nodes) for one in result.groups]
    tiers = [(tier, one.devices, one.allocated, one.free) for tier, one in result.tiers.items()]
    gpus = [(product, one.gpus, one.in_use) for product, one in result.gpus.items()]
    parts = [
        _table(("group", "pods", "placed", "waiting", "nodes"), pods),
        *("\n".join(_why(group)) for group in result.groups if group.waiting),
        _table(("tier", "devices", "in use", "free"), tiers),
        _table(("product", "gpus", "in use"), gpus),
    ]
    fragments = [
        f"of {one.free:,} free whole GPUs, {one.usable:,} can serve pods that want {one.gpus} on one node"
        for one in result.fragments
        if one.free
    ]
    return "\n\n".join([*parts, *(["\n".join(fragments)] if fragments else [])])


def _table(heads: Sequence[str], rows: Sequence[tuple[str | int, ...]]) -> str:
    return columns(heads, [[one if isinstance(one, str) else f"{one:,}" for one in row] for row in rows])


def _why(group: GroupResult) -> Iterator[str]:
    """What is in the way of the pods that wait."""
    if group.error:
        yield f"{group.name} can never be placed: {group.error}"
        return
    yield f"why {group.name} waits:"
    for why in group.why:
        devices = f"{why.devices:,} device{'s' * (why.devices != 1)} on " if why.devices else ""
        where = f"{devices}{why.nodes:,} node{'s' * (why.nodes != 1)}: " if why.nodes else ""
        yield f"  - {where}{why.reason}"
