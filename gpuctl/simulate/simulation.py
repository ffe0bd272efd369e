"""Places pods on nodes in memory with the scheduler's own allocation, over simulated time.

A node is chosen at random among those that fit, as the real scheduler does if nodes differ only by devices.
The same seed gives the same choices. CPU and memory are not considered. Pods wait in the scheduler's order,
by priority and arrival, and are tried again as soon as something ends on a node. A gang is placed as a whole
or not at all. The scheduler's backoff, of up to ten seconds, and preemption are left out.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from gpuctl.simulate.cluster import Object, SimulatedCluster
from gpuctl.simulate.reasons import SIMULATION, Reasons
from gpuctl.simulate.results import ClassResult, Fragments, GroupResult, Result, Why
from gpuctl.simulate.timeline import Timeline
from gpuctl.simulate.trace import Arrival
from gpuctl.simulate.usage import Device, Level, Usage
from gpuctl.simulate.workload import PodGroup
from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator, PoolInvalid
from kubernetes_rules.allocator.counters import suffices
from kubernetes_rules.defaults import defaulted_claim_spec
from kubernetes_rules.taints import untolerated_taint


class Candidates:
    """The nodes on which a group may fit; a node that did not fit is out until something there ends."""

    # Gaps in the list are filled from its end, so that picking, dropping and restoring take constant time.

    def __init__(self, nodes: int) -> None:
        self._nodes = list(range(nodes))
        self._place = {node: node for node in self._nodes}

    def pick(self, chance: random.Random) -> int | None:
        """A node at random; None if there is none."""
        return self._nodes[chance.randrange(len(self._nodes))] if self._nodes else None

    def drop(self, node: int) -> None:
        """Take a node out: the group does not fit there now."""
        place, last = self._place.pop(node), self._nodes.pop()
        if last != node:
            self._nodes[place] = last
            self._place[last] = place

    def restore(self, node: int) -> None:
        """Put a node back: something ended there."""
        if node not in self._place:
            self._place[node] = len(self._nodes)
            self._nodes.append(node)


class _Waiting(NamedTuple):
    """A pod, or a gang, that waits since it came, and how long it will run; None means for ever."""

    since: float
    lasts: float | None


class Uses:
    """What simulated pods hold on each node, so that nodes that are alike can be told."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._patterns = cluster.patterns
        self._held: list[Counter[Hashable]] = [Counter() for _ in cluster.nodes]
        self._states: list[Hashable] = [None] * len(cluster.nodes)

    def count(self, node: int, claim: Object, change: int) -> None:
        """Count a claim that gets its devices on the node (1), or gives them back (-1)."""
        held = self._held[node]
        for one in claim["status"]["allocation"]["devices"].get("results") or ():
            share = tuple(sorted((one.get("consumedCapacity") or {}).items()))
            held[one["device"], one.get("adminAccess", False), share] += change
        self._states[node] = None

    def state(self, node: int) -> Hashable:
        """Equal for nodes that publish the same, and of which the same is held."""
        if self._states[node] is None:
            # A counter that came back to 0 is as if it had never been.
            self._states[node] = self._patterns[node], frozenset((+self._held[node]).items())
        return self._states[node]


class Simulation:
    """One run of pods over a cluster."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        groups: Sequence[PodGroup],
        seed: int,
        until_seconds: float | None = None,
        trace: Sequence[Arrival] = (),
        timeline: Timeline | None = None,
    ) -> None:
        """The run ends at ``until_seconds``; without it, when all pods have come and no more can be placed.

        The pods of ``trace``, which is sorted, come in addition to those that groups count. What happens is
        noted in ``timeline``. Raises AllocationFailed for a malformed slice or claim of the cluster.
        """
        self._cluster = cluster
        self._groups = groups
        self._until = until_seconds
        self._allocator = Allocator(cluster.slices, cluster.classes, cluster.claims)
        self._reach_across = any(not one["spec"].get("nodeName") for one in cluster.slices)
        self._usage = Usage(cluster.slices)
        for claim in cluster.claims:
            self._usage.count(claim, 1, 0.0)
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        self._candidates = [Candidates(len(cluster.nodes)) for _ in groups]
        self._trace = trace
        self._timeline = timeline
        self._waiting: list[deque[_Waiting]] = [deque() for _ in groups]
        self._waiting_pods = [Level() for _ in groups]
        self._all_waiting = self._most_waiting = 0
        self._running_pods = [Level() for _ in groups]
        traced = Counter[int]()
        for one in trace:
            traced[one.group] += one.pods * groups[one.group].gang
        self._results = [GroupResult(one.name, one.pods + traced[i]) for i, one in enumerate(groups)]
        self._claims = [
            [_claim(group, spec, number) for number, spec in enumerate(group.claims)] for group in groups
        ]
        self._uses = Uses(cluster)
        self._changes = 0
        self._explained: dict[int, int] = {}
        # What did not fit on a node does not fit on one that is like it, unless devices are shared by nodes.
        self._unfit: list[set[Hashable]] = [set() for _ in groups]
        self._ends: list[tuple[float, int, int, int, list[Object]]] = []
        self._sequence = itertools.count()

    def run(self, progress: Callable[[int], None]) -> Result:
        """Simulate all arrivals and ends; ``progress`` is called with the number of pods that have come."""
        # Each group's arrivals are in order; they are merged as they are needed, and not sorted all at once.
        counted = (_arrivals(group, index) for index, group in enumerate(self._groups))
        arrivals = heapq.merge(*counted, self._trace, key=lambda one: one.seconds)
        now, come = 0.0, 0
        for now, group, count, lasts in arrivals:
            self._end_until(now)
            blocked = bool(self._waiting[group])  # earlier pods of the group wait for the same
            self._waiting[group].extend([_Waiting(now, lasts)] * count)
            self._queue(group, count, now)
            if not blocked:
                self._place_waiting([group], now)
            self._most_waiting = max(self._most_waiting, self._all_waiting)
            come += count
            progress(come)
        while self._ends and (any(self._waiting) if self._until is None else self._ends[0][0] <= self._until):
            now = self._ends[0][0]
            self._end_until(now)
        return self._result(now if self._until is None else self._until)

    def _result(self, now: float) -> Result:
        for group, (waiting, result) in enumerate(zip(self._waiting, self._results, strict=True)):
            result.waiting = len(waiting) * self._groups[group].gang
            if waiting and result.error is None:
                self._say_why(group, now)
        free = self._free()
        return Result(
            tuple(self._results),
            self._usage.tiers(free, now),
            self._usage.gpus(now),
            self._classes(now),
            self._fragments(free),
            self._busy_hours(now),
            now,
            self._most_waiting,
            None if self._timeline is None else self._timeline.course(now),
        )

    def _end_until(self, now: float) -> None:
        """End the pods whose time is over, in order, and place waiting pods on what they held."""
        while self._ends and self._ends[0][0] <= now:
            ended, _, group, node, claims = heapq.heappop(self._ends)
            self._running_pods[group].change(-1, ended)
            self._release(node, claims)
            for claim in claims:
                self._count(claim, -1, ended)
            # A device that several nodes can reach may have been held from any of them.
            for candidates in self._candidates:
                for place in range(len(self._cluster.nodes)) if self._reach_across else (node,):
                    candidates.restore(place)
            self._place_waiting(range(len(self._groups)), ended)

    def _place_waiting(self, groups: Iterable[int], now: float) -> None:
        """Place pods in the order of the scheduler's queue; a pod that does not fit stops its group alone."""
        order = [self._first(group) for group in groups if self._waiting[group]]
        heapq.heapify(order)
        while order:
            group = heapq.heappop(order)[-1]
            waiting, result, pods = self._waiting[group], self._results[group], self._groups[group].gang
            if result.error is not None:
                continue
            if self._place(group, now):
                result.placed += pods
                result.waits_seconds += [now - waiting.popleft().since] * pods
                self._queue(group, -1, now)
                self._running_pods[group].change(pods, now)
                if waiting:
                    heapq.heappush(order, self._first(group))
            elif self._results[group].error is None and result.why_seconds is None:
                self._say_why(group, now)

    def _first(self, group: int) -> tuple[int, float, int]:
        """What sorts the first pod of a group in the queue."""
        return -self._groups[group].priority, self._waiting[group][0].since, group

    def _queue(self, group: int, change: int, now: float) -> None:
        """Count pods, or gangs, that begin or cease to wait."""
        change *= self._groups[group].gang
        self._waiting_pods[group].change(change, now)
        self._all_waiting += change
        if self._timeline is not None:
            self._timeline.wait(self._all_waiting, now)

    def _count(self, claim: Object, change: int, now: float) -> None:
        """Count a claim that gets its devices (1), or gives them back (-1)."""
        self._changes += 1
        self._usage.count(claim, change, now)
        if self._timeline is not None:
            self._timeline.count(claim, change, now)

    def _say_why(self, group: int, now: float) -> None:
        """Record why pods of a group wait now."""
        result, gang = self._results[group], self._groups[group].gang
        result.why_seconds = now
        # The answer stays the same until a pod gets devices or gives them back.
        if self._explained.get(group) == self._changes:
            return
        self._explained[group] = self._changes
        # What is in the way of a gang is in the way of the first member beside those that have a place.
        with self._tried(group) as found:
            why = Reasons(self._cluster, self._allocator).of(self._claims[group])
        part = (Why(f"{len(found)} of the {gang} pods of a gang find a place"),) if gang > 1 else ()
        result.why = (*part, *why)

    def _place(self, group: int, now: float) -> bool:
        """Place the first pod of a group that waits, or all of the first gang; whether that was possible."""
        with self._tried(group) as found:
            if len(found) < self._groups[group].gang:
                return False
            places = list(found)
            found.clear()
        lasts = self._waiting[group][0].lasts
        for node, held in places:
            for claim in held:
                self._count(claim, 1, now)
            if lasts is not None:
                heapq.heappush(self._ends, (now + lasts, next(self._sequence), group, node, held))
        return True

    @contextmanager
    def _tried(self, group: int) -> Iterator[list[tuple[int, list[Object]]]]:
        """Nodes for the pods of a gang, or for one pod, as many as there are, with what each pod holds there.

        What is still in the list at the end is given back.
        """
        found: list[tuple[int, list[Object]]] = []
        dropped: list[int] = []
        while len(found) < self._groups[group].gang:
            place = self._find(group, dropped)
            if place is None:
                break
            found.append(place)
        yield found
        if found:
            for node, held in found:
                self._release(node, held)
            for node in dropped:
                self._candidates[group].restore(node)

    def _find(self, group: int, dropped: list[int]) -> tuple[int, list[Object]] | None:
        """A node for one pod of a group, and the claims that it holds there from now on.

        Notes in ``dropped`` the nodes that are no candidates any more.
        """
        candidates, claims, unfit = self._candidates[group], self._claims[group], self._unfit[group]
        while (node := candidates.pick(self._chance)) is not None:
            state = None if self._reach_across else self._uses.state(node)
            allocations = None
            if state not in unfit:
                try:
                    allocations = self._allocator.allocate(self._cluster.nodes[node], claims)
                except PoolInvalid:
                    state = None
                except AllocationFailed as error:
                    self._results[group].error = (
                        f"{error.what}: {error.way_out}" if error.way_out else error.what
                    )
                    return None
            if allocations is None:
                if state is not None:
                    unfit.add(state)
                candidates.drop(node)
                dropped.append(node)
                continue
            held = [
                {**claim, "status": {"allocation": allocation}}
                for claim, allocation in zip(claims, allocations, strict=True)
            ]
            for claim in held:
                self._allocator.assume(claim)
                self._uses.count(node, claim, 1)
            return node, held
        return None

    def _release(self, node: int, claims: Iterable[Object]) -> None:
        """Give back what a pod holds on a node."""
        for claim in claims:
            self._allocator.release(claim)
            self._uses.count(node, claim, -1)

    def _classes(self, now: float) -> dict[str, ClassResult]:
        """The classes with pods that had to wait for devices."""
        waiting: Counter[str] = Counter()
        hours: dict[str, float] = {}
        for group, level in zip(self._groups, self._waiting_pods, strict=True):
            waited = level.hours(now)
            for name, count in group.devices_by_class().items():
                if waited or level.value:
                    waiting[name] += count * level.value
                    hours[name] = hours.get(name, 0.0) + count * waited
        return {name: ClassResult(waiting[name], hours[name]) for name in sorted(hours)}

    def _busy_hours(self, now: float) -> float | None:
        """The GPU-hours of work of all pods; None if they are not known."""
        hours = 0.0
        # Nobody says how busy the pods are that a live cluster had before.
        if self._cluster.claims:
            return None
        for group, level in zip(self._groups, self._running_pods, strict=True):
            if level.most and group.busy_gpus is None:
                return None
            hours += level.hours(now) * (group.busy_gpus or 0.0)
        return hours

    def _free(self) -> set[Device]:
        """The devices that nobody holds, without taints, for which the counters leave room."""
        found: set[Device] = set()
        for node in self._cluster.nodes:
            view = self._allocator.view(node)
            for device in view.devices:
                if self._usage.is_held(device.id) or untolerated_taint(device.taints, ()) is not None:
                    continue
                left = self._allocator.counters.of(view, device.id.pool_id) if device.consumes else {}
                if suffices(left, device):
                    found.add(device.id)
        return found

    def _fragments(self, free_devices: Collection[Device]) -> tuple[Fragments, ...]:
        """How many of the free whole GPUs pods could use that want several on one node."""
        free: Counter[str] = Counter()
        size: Counter[str] = Counter()
        for device, tier in self._usage.tier.items():
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


def _arrivals(group: PodGroup, index: int) -> Iterator[Arrival]:
    for number in range(group.count):
        yield Arrival(group.starts_seconds + number * group.every_seconds, index, 1, group.lasts_seconds)


def _claim(group: PodGroup, spec: Mapping[str, Any], number: int) -> Object:
    """A claim of a pod of a group; all its pods have claims of the same names."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"{group.name}-{number}",
            "namespace": SIMULATION,
            "uid": f"{group.name}-{number}",
        },
        "spec": defaulted_claim_spec(spec),
    }
