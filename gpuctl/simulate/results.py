"""The results of a simulation: pods, devices by tier, GPU-hours, and the classes that pods waited for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, slots=True)
class Why:
    """Why the pods of a group wait: a reason that rules out ``devices`` on ``nodes`` nodes.

    Both are 0 for a reason that concerns the cluster as a whole.
    """

    reason: str
    devices: int = 0
    nodes: int = 0


@dataclass(slots=True)
class GroupResult:
    """How the pods of a group fared; ``waits_seconds`` are the waits of those placed, in simulated seconds.

    ``why`` says what was in the way at ``why_seconds``: at the end if pods still wait then, else when the
    first pod had to wait. Both are empty if none had to.
    """

    name: str
    pods: int
    placed: int = 0
    waiting: int = 0
    waits_seconds: list[float] = field(default_factory=list)
    error: str | None = None
    why: tuple[Why, ...] = ()
    why_seconds: float | None = None

    @property
    def median_wait(self) -> float | None:
        """The median wait of the pods that were placed."""
        return median(self.waits_seconds) if self.waits_seconds else None

    @property
    def p95_wait(self) -> float | None:
        """95 % of the pods that were placed waited so long or less."""
        waits = sorted(self.waits_seconds)
        return waits[-(-len(waits) * 95 // 100) - 1] if waits else None


@dataclass(frozen=True, slots=True)
class TierResult:
    """The devices of one tier in the cluster: ``allocated`` at the end, and the most at any time.

    ``free`` are those that a claim could have at the end, each considered alone: the GPU is not taken in
    another form either. ``hours_in_use`` and ``hours_idle`` are device-hours. ``hours_idle`` is None if the
    forms of a GPU exclude each other: devices of one form are not idle while another form is in use.
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
    hours_idle: float


@dataclass(frozen=True, slots=True)
class ClassResult:
    """The devices of one class that pods lacked: how many at the end, and in device-hours."""

    waiting: int
    hours_waited: float


@dataclass(frozen=True, slots=True)
class Fragments:
    """How many of the ``free`` whole GPUs are usable for pods that want ``gpus`` of them on one node."""

    gpus: int
    free: int
    usable: int


@dataclass(frozen=True, slots=True)
class Course:
    """What a timeline has noted; sequences have the mean in each step of ``step_seconds``.

    ``gpus`` are the GPUs that the devices of each class amount to, of ``all_gpus``, and ``most_gpus`` the
    most at any moment. ``fragmentation`` is from 0 to 1. The last step ends at ``ended_seconds``.
    """

    step_seconds: float
    ended_seconds: float
    all_gpus: int
    waiting: tuple[float, ...]
    gpus: Mapping[str, tuple[float, ...]]
    gpu_hours: Mapping[str, float]
    most_gpus: Mapping[str, float]
    fragmentation: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """All results of a simulation; ``ended_seconds`` is the simulated time that it covers.

    ``busy_hours`` are the GPU-hours of work that pods did; None if the workload does not say it of all pods.
    ``most_waiting`` is the most pods that waited at one time; those that found a place at once do not count.
    ``course`` is what happened over time, if that was noted.
    """

    groups: tuple[GroupResult, ...]
    tiers: Mapping[str, TierResult]
    gpus: Mapping[str, GpuResult]
    classes: Mapping[str, ClassResult]
    fragments: tuple[Fragments, ...]
    busy_hours: float | None
    ended_seconds: float
    most_waiting: int = 0
    course: Course | None = None

    @property
    def gpu_hours(self) -> float:
        """The GPU-hours of all GPUs."""
        return sum(one.hours for one in self.gpus.values())

    @property
    def hours_in_use(self) -> float:
        """The GPU-hours in which somebody had the GPU."""
        return sum(one.hours_in_use for one in self.gpus.values())


@dataclass(frozen=True, slots=True)
class Cost:
    """What the GPUs cost, in the currency of ``gpu_hour``, the price of one GPU-hour.

    ``idle`` is for GPU-hours in which nobody had the GPU. ``without_work`` also counts GPU-hours in which the
    GPU was held but did nothing; None if the workload does not say how busy its pods are.
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
