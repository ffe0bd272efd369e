"""The results of a simulation: pods by group, and what is in use and free then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
