"""What happens in a run, and when: the same from the same seed, decided before anything starts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

POD_KINDS = {
    "whole": 2, "extended": 1, "layout": 3, "dynamic": 4, "time-sliced": 5, "mps": 4, "mps-memory": 4,
    "vfio": 1, "admin": 2,
}  # fmt: skip
"""How often pods ask for what, relative to each other."""

CALL_KINDS = ("whole", "admin", "partition", "time-sliced", "mps")
"""What the second caller of the plugin has prepared, on GPUs that the scheduler does not know."""

MOST_AT_ONCE = 4
"""The partitions and shares that it has prepared at once."""

FAULTS = (
    "xid-31", "xid-48", "xid-79", "xid-94", "lost", "ecc", "rows-pending", "call-fails", "call-hangs",
    "call-slow", "mig-fails", "mps-refuses",
)  # fmt: skip
NEW_PROCESS = (
    "plugin-term",
    "plugin-kill",
    "hand-over",
    "rolling-update",
    "controller-term",
    "controller-kill",
)
"""They put another process into the place of the plugin or of the controller."""

RESTARTS = (
    "kubelet-term", "kubelet-kill", "containerd-term", "containerd-kill", "supervisor-term",
    "supervisor-kill", "mps-daemon", "api-server", "full-disk",
)  # fmt: skip

NEW_PROCESSES_UNTIL = 0.4
"""The part of the run with new processes of the driver; memory is compared in the rest of it."""

PODS_PER_SECOND, CALLS_PER_SECOND = 1.2, 1.2
FAULTS_APART, RESTARTS_APART = (10.0, 30.0), (15.0, 35.0)
FAULT_SECONDS, OUTAGE_SECONDS = (3.0, 20.0), (0.0, 5.0)
POD_SECONDS = (1, 15)
DELETED_EARLY = 0.2
QUIET_SECONDS = 10.0
"""At the beginning nothing is disturbed."""

NAMESPACES = tuple(f"team-{letter}" for letter in "abcd")
POD_GPUS = 6
"""The first GPUs are offered to pods, and get faults; the others are those of the second caller."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that is created at a time, and ends by itself after some seconds or is deleted then."""

    at: float
    name: str
    namespace: str
    kind: str
    seconds: int
    deleted: bool


@dataclass(frozen=True, slots=True)
class Call:
    """Claims of a kind that the second caller has prepared and unprepared, a call for each at once."""

    at: float
    kind: str
    claims: int


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A fault of a GPU (an index), a restart or a full disk. Most of them last some seconds."""

    at: float
    what: str
    gpu: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that happens, each sort in the order of time."""

    pods: tuple[Pod, ...]
    calls: tuple[Call, ...]
    faults: tuple[Disturbance, ...]
    restarts: tuple[Disturbance, ...]


def plan(seed: int, seconds: float) -> Plan:
    """What happens within so many seconds."""
    pods, calls, faults, restarts = (random.Random(f"{seed} {sort}") for sort in range(4))  # noqa: S311
    return Plan(
        tuple(_pod(pods, at, number) for number, at in enumerate(_arrivals(pods, PODS_PER_SECOND, seconds))),
        tuple(_call(calls, at) for at in _arrivals(calls, CALLS_PER_SECOND, seconds)),
        tuple(_faults(faults, seconds)),
        tuple(_restarts(restarts, seconds)),
    )


def _arrivals(numbers: random.Random, per_second: float, until: float) -> Iterator[float]:
    """The times of independent arrivals."""
    at = numbers.expovariate(per_second)
    while at < until:
        yield at
        at += numbers.expovariate(per_second)


def _pod(numbers: random.Random, at: float, number: int) -> Pod:
    (kind,) = numbers.choices(list(POD_KINDS), list(POD_KINDS.values()))
    namespace = "admins" if kind == "admin" else numbers.choice(NAMESPACES)
    seconds = numbers.randint(*POD_SECONDS)
    return Pod(at, f"{kind}-{number}", namespace, kind, seconds, numbers.random() < DELETED_EARLY)


def _call(numbers: random.Random, at: float) -> Call:
    kind = numbers.choice(CALL_KINDS)
    return Call(at, kind, 1 if kind in ("whole", "admin") else numbers.randint(1, MOST_AT_ONCE))


def _apart(numbers: random.Random, between: tuple[float, float], until: float) -> Iterator[float]:
    at = QUIET_SECONDS
    while at < until:
        yield at
        at += numbers.uniform(*between)


def _faults(numbers: random.Random, until: float) -> Iterator[Disturbance]:
    # The controller believes that a fault is over the later the more often the GPU had it, so each fault hits
    # each GPU before one comes back.
    deck = _dealt(numbers, list(itertools.product(FAULTS, range(POD_GPUS))))
    for at in _apart(numbers, FAULTS_APART, until):
        what, gpu = next(deck)
        yield Disturbance(at, what, gpu, numbers.uniform(*FAULT_SECONDS))


def _restarts(numbers: random.Random, until: float) -> Iterator[Disturbance]:
    early, late = _dealt(numbers, (*NEW_PROCESS, *RESTARTS)), _dealt(numbers, RESTARTS)
    for at in _apart(numbers, RESTARTS_APART, until):
        what = next(early if at < until * NEW_PROCESSES_UNTIL else late)
        yield Disturbance(at, what, None, numbers.uniform(*OUTAGE_SECONDS))


def _dealt(numbers: random.Random, cards: Sequence[T]) -> Iterator[T]:
    """The cards without end, all of them in another order each time."""
    while True:
        yield from numbers.sample(cards, len(cards))
