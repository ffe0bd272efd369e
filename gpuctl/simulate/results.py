"""The result of a simulation, for scripts and for people: pods by group, and what is in use and free then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuctl.cli.output import columns


@dataclass(frozen=True, slots=True)
class Why:
    """A reason why pods of a group wait, added up over the nodes."""

    reason: str
    devices: int = 0
    """The devices that it rules out; 0 for a reason that concerns the cluster as a whole."""
    nodes: int = 0
    """The nodes on which they lie."""


@dataclass(frozen=True, slots=True)
class GroupResult:
    """How many pods of a group fit, and why the others do not."""

    name: str
    pods: int
    placed: int
    waiting: int
    nodes: int
    """The nodes on which the placed pods are."""
    why: tuple[Why, ...] = ()
    """What was in the way of the first pod that did not fit."""
    error: str | None = None
    """Why none can ever be placed."""


@dataclass(frozen=True, slots=True)
class TierResult:
    """The devices of one tier."""

    devices: int
    allocated: int
    free: int
    """Those that a claim could have, each considered alone: its GPU is not taken in another form either."""


@dataclass(frozen=True, slots=True)
class GpuResult:
    """The GPUs of one product."""

    gpus: int
    in_use: int
    """Those of which a claim has all, or any part or share."""


@dataclass(frozen=True, slots=True)
class Fragments:
    """How many of the free whole GPUs can serve pods that want several on one node."""

    gpus: int
    """A pod that wants so many whole GPUs on one node"""
    free: int
    """finds so many free over all nodes"""
    usable: int
    """and can use so many of them."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """What `gpuctl simulate` prints: how a workload fits on nodes of machines, or on a cluster as it is."""

    groups: tuple[GroupResult, ...]
    tiers: Mapping[str, TierResult]
    gpus: Mapping[str, GpuResult]
    """By product."""
    fragments: tuple[Fragments, ...]


def picture(result: Simulation) -> str:
    """The whole result for people."""
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
