"""The results of a simulation: pods, devices by tier, GPUs and their hours, and what was waited for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Why:
    """Why the pods of a group wait, for one request: devices of the cluster that are ruled out alike.

    ``devices`` of them lie on ``nodes`` nodes. A sentence about the cluster as a whole has neither.
    """

    reason: str
    devices: int = 0
    nodes: int = 0


@dataclass(slots=True)
class GroupResult:
    """What became of the pods of a group; waits are simulated seconds of those that were placed.

    ``why`` is as things were at ``why_seconds``: at the end where pods still wait then, else when the first
    of the group had to wait; both are empty where none had to.
    """

    name: str
    pods: int
    placed: int = 0
    waiting: int = 0
    waits_seconds: list[float] = field(default_factory=list)
    error: str | None = None
    why: tuple[Why, ...] = ()
    why_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TierResult:
    """The devices of one tier over the cluster: those in use at the end, and at most at once.

    ``free`` are those that a claim could have at the end, each by itself: their GPU is not taken in another
    form either. ``hours_in_use`` are device-hours, ``hours_idle`` the others; None where a GPU is offered in
    several forms that exclude each other, since its devices of one form are not idle while another is in use.
    """

    devices: int
    allocated: int
    most_allocated: int
    free: int
    hours_in_use: float
    hours_idle: float | None


@dataclass(frozen=True, slots=True)
class GpuResult:
    """The GPUs of one product. A GPU is in use while a claim has it, or any part or share of it."""

    gpus: int
    in_use: int
    hours: float
    hours_in_use: float

    @property
    def hours_idle(self) -> float:
        """GPU-hours in which nobody had any of them."""
        return self.hours - self.hours_in_use


@dataclass(frozen=True, slots=True)
class ClassResult:
    """The shortage of devices of one class: those that pods wait for at the end, and device-hours waited."""

    waiting: int
    hours_waited: float


@dataclass(frozen=True, slots=True)
class Fragments:
    """Of the ``free`` whole GPUs, how many a pod that wants ``gpus`` of them on one node could still use."""

    gpus: int
    free: int
    usable: int


@dataclass(frozen=True, slots=True)
class Result:
    """All results of a simulation; ``ended_seconds`` is the simulated time that it covers.

    ``busy_hours`` are the GPU-hours of work that pods did, None where not all of them say how much they do.
    """

    groups: tuple[GroupResult, ...]
    tiers: Mapping[str, TierResult]
    gpus: Mapping[str, GpuResult]
    classes: Mapping[str, ClassResult]
    fragments: tuple[Fragments, ...]
    busy_hours: float | None
    ended_seconds: float

    @property
    def gpu_hours(self) -> float:
        """The hours of all GPUs."""
        return sum(one.hours for one in self.gpus.values())

    @property
    def hours_in_use(self) -> float:
        """The hours in which GPUs were in use."""
        return sum(one.hours_in_use for one in self.gpus.values())


@dataclass(frozen=True, slots=True)
class Cost:
    """In the currency of ``gpu_hour``, what one GPU-hour costs.

    ``idle`` is for GPU-hours in which nobody had the GPU; ``without_work`` for these and for those in which
    it was in use but not busy, None where the workload does not say how busy its pods are.
    """

    gpu_hour: float
    total: float
    idle: float
    without_work: float | None


def cost_of(result: Result, gpu_hour: float) -> Cost:
    """The cost of all GPUs for the time that a simulation covers."""
    idle = result.gpu_hours - result.hours_in_use
    worked = result.busy_hours
    return Cost(
        gpu_hour,
        result.gpu_hours * gpu_hour,
        idle * gpu_hour,
        None if worked is None else (result.gpu_hours - worked) * gpu_hour,
    )
