"""Places pods on nodes in memory with the scheduler's own allocation, over simulated time.

Which of the nodes that fit is taken is chance, as in the real scheduler where nothing but devices
tells nodes apart; the same seed gives the same chances. CPU and memory are not looked at.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuctl.simulate.workload import PodGroup
from gpuctl.status.fleet import tier_of
from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator
from kubernetes_rules.allocator.counters import exhausted
from kubernetes_rules.claim_defaults import defaulted_claim_spec

Object = dict[str, Any]
Device = tuple[str, str, str]


@dataclass(slots=True)
class GroupResult:
    """What became of the pods of a group; waits are simulated seconds of those that were placed."""

    name: str
    pods: int
    placed: int = 0
    waiting: int = 0
    waits_seconds: list[float] = field(default_factory=list)
    error: str | None = None


@dataclass(slots=True)
class TierResult:
    """The devices of one tier over the cluster: those in use at the end, and at most at once.

    ``free`` are those that a claim could have at the end, each by itself: their GPU is not taken in another
    form either.
    """

    devices: int = 0
    allocated: int = 0
    most_allocated: int = 0
    free: int = 0


@dataclass(frozen=True, slots=True)
class Fragments:
    """Of the ``free`` whole GPUs, how many a pod that wants ``gpus`` of them on one node could still use."""

    gpus: int
    free: int
    usable: int


@dataclass(frozen=True, slots=True)
class Result:
    """All that a simulation tells; ``ended_seconds`` is the simulated time of the last event."""

    groups: tuple[GroupResult, ...]
    tiers: Mapping[str, TierResult]
    fragments: tuple[Fragments, ...]
    ended_seconds: float


class _Candidates:
    """The nodes on which a group may fit: those that did not fit are out until something there ends."""

    def __init__(self, nodes: int) -> None:
        self._nodes = list(range(nodes))
        self._place = {node: node for node in self._nodes}

    def pick(self, chance: random.Random) -> int | None:
        """One of them, None when there is none."""
        return self._nodes[chance.randrange(len(self._nodes))] if self._nodes else None

    def drop(self, node: int) -> None:
        """It does not fit there now."""
        place, last = self._place.pop(node), self._nodes.pop()
        if last != node:
            self._nodes[place] = last
            self._place[last] = place

    def restore(self, node: int) -> None:
        """Something ended there."""
        if node not in self._place:
            self._place[node] = len(self._nodes)
            self._nodes.append(node)


class Simulation:
    """One run over ``node_count`` like nodes; ``slices`` are those of one of them."""

    def __init__(
        self,
        node_count: int,
        slices: Sequence[Object],
        classes: Sequence[Object],
        groups: Sequence[PodGroup],
        seed: int,
    ) -> None:
        self._groups = groups
        self._nodes = [_node(index) for index in range(node_count)]
        copies = [_slice_of(one, index) for index in range(node_count) for one in slices]
        self._allocator = Allocator(copies, classes, ())
        self._tier = {_identity(one, device): tier_of(device) for one in copies for device in _devices(one)}
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        self._candidates = [_Candidates(node_count) for _ in groups]
        self._waiting: list[deque[float]] = [deque() for _ in groups]
        self._results = [GroupResult(group.name, group.count) for group in groups]
        self._tiers: dict[str, TierResult] = {}
        for tier in self._tier.values():
            self._tiers.setdefault(tier, TierResult()).devices += 1
        self._holders: Counter[Device] = Counter()
        self._ends: list[tuple[float, int, int, list[Object]]] = []
        self._sequence = itertools.count()

    def run(self, progress: Callable[[int], None]) -> Result:
        """Play all arrivals and ends; ``progress`` hears how many pods have come so far."""
        arrivals = heapq.merge(*(_arrivals(group, index) for index, group in enumerate(self._groups)))
        now = 0.0
        for come, (now, group) in enumerate(arrivals, 1):
            self._end_until(now)
            self._waiting[group].append(now)
            if len(self._waiting[group]) == 1:  # else its elders wait for the same
                self._place_waiting(group, now)
            progress(come)
        while self._ends and any(self._waiting):
            now = self._ends[0][0]
            self._end_until(now)
        for waiting, result in zip(self._waiting, self._results, strict=True):
            result.waiting = len(waiting)
        free = self._free()
        for device in free:
            self._tiers[self._tier[device]].free += 1
        return Result(tuple(self._results), self._tiers, self._fragments(free), now)

    def _end_until(self, now: float) -> None:
        """End the pods whose time is over, in order, and give what they held to those that wait."""
        while self._ends and self._ends[0][0] <= now:
            ended, _, node, claims = heapq.heappop(self._ends)
            for claim in claims:
                self._allocator.release(claim)
                self._count(claim, -1)
            for candidates in self._candidates:
                candidates.restore(node)
            for group in sorted(range(len(self._groups)), key=self._longest_wait):
                self._place_waiting(group, ended)

    def _longest_wait(self, group: int) -> float:
        return self._waiting[group][0] if self._waiting[group] else float("inf")

    def _place_waiting(self, group: int, now: float) -> None:
        waiting, result = self._waiting[group], self._results[group]
        while waiting and result.error is None and self._place(group, now):
            result.placed += 1
            result.waits_seconds.append(now - waiting.popleft())

    def _place(self, group: int, now: float) -> bool:
        """Place one pod of a group somewhere; whether that was possible."""
        candidates, wanted = self._candidates[group], self._groups[group]
        claims = [_claim(wanted, spec, number) for number, spec in enumerate(wanted.claims)]
        while (node := candidates.pick(self._chance)) is not None:
            try:
                allocations = self._allocator.allocate(self._nodes[node], claims)
            except AllocationFailed as error:
                self._results[group].error = str(error)
                return False
            if allocations is None:
                candidates.drop(node)
                continue
            held = [
                {**claim, "status": {"allocation": allocation}}
                for claim, allocation in zip(claims, allocations, strict=True)
            ]
            for claim in held:
                self._allocator.assume(claim)
                self._count(claim, 1)
            if wanted.lasts_seconds is not None:
                end = now + wanted.lasts_seconds
                heapq.heappush(self._ends, (end, next(self._sequence), node, held))
            return True
        return False

    def _count(self, claim: Object, change: int) -> None:
        for result in claim["status"]["allocation"]["devices"]["results"]:
            device = (result["driver"], result["pool"], result["device"])
            before = self._holders[device] > 0
            self._holders[device] += change
            tier = self._tiers[self._tier[device]]
            tier.allocated += (self._holders[device] > 0) - before
            tier.most_allocated = max(tier.most_allocated, tier.allocated)

    def _free(self) -> set[Device]:
        """The devices that nobody holds and for which the counters leave room."""
        found: set[Device] = set()
        for node in self._nodes:
            view = self._allocator.view(node)
            for device in view.devices:
                if not self._holders[device.id] and not (
                    device.consumes
                    and exhausted(self._allocator.counters.of(view, device.id.pool_id), device)
                ):
                    found.add(device.id)
        return found

    def _fragments(self, free_devices: Collection[Device]) -> tuple[Fragments, ...]:
        """How far the free whole GPUs could still serve pods that want several on one node."""
        free: Counter[str] = Counter()
        size: Counter[str] = Counter()
        for device, tier in self._tier.items():
            if tier == "whole":
                size[device[1]] += 1
                free[device[1]] += device in free_devices
        largest = max(size.values(), default=0)
        total = sum(free.values())
        counts = [count for count in (1, 2, 4, 8, 16) if count <= largest]
        return tuple(
            Fragments(count, total, sum(number - number % count for number in free.values()))
            for count in counts
        )


def _arrivals(group: PodGroup, index: int) -> list[tuple[float, int]]:
    return [(group.starts_seconds + number * group.every_seconds, index) for number in range(group.count)]


def _node(index: int) -> Object:
    name = f"node-{index}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
    }


def _slice_of(one: Object, index: int) -> Object:
    """The slice of the pattern's node, for another node."""
    name, spec = f"node-{index}", one["spec"]
    pool = {**spec["pool"], "name": f"{name}/{spec['driver']}"}
    return {
        **one,
        "metadata": {"name": f"{one['metadata']['name']}-{index}"},
        "spec": {**spec, "nodeName": name, "pool": pool},
    }


def _devices(one: Object) -> Sequence[Object]:
    return one["spec"].get("devices") or ()


def _identity(one: Object, device: Object) -> Device:
    return one["spec"]["driver"], one["spec"]["pool"]["name"], device["name"]


def _claim(group: PodGroup, spec: Mapping[str, Any], number: int) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"{group.name}-{number}",
            "namespace": "simulation",
            "uid": f"{group.name}-{number}",
        },
        "spec": defaulted_claim_spec(spec),
    }
