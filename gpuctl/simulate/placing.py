"""Places the pods of a workload on nodes in memory, with the scheduler's own allocation.

Pods come in the order of the scheduler's queue: by priority, then as the workload lists them. A node is
chosen at random among those that fit, as the real scheduler does if nodes differ only by devices; the same
seed gives the same choices. A gang is placed as a whole or not at all. CPU, memory and preemption are left
out.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from gpuctl.simulate.cluster import Object, SimulatedCluster
from gpuctl.simulate.reasons import SIMULATION, Reasons
from gpuctl.simulate.results import GroupResult, Simulation, Why
from gpuctl.simulate.use import devices_in_use, fragments, free_devices, gpus_in_use
from gpuctl.simulate.workload import PodGroup
from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator, PoolInvalid
from kubernetes_rules.defaults import defaulted_claim_spec

Placed = tuple[int, list[Object]]
"""The number of the node on which a pod is, and its claims with their devices."""


def simulate(cluster: SimulatedCluster, groups: Sequence[PodGroup], seed: int) -> Simulation:
    """Place all pods of these groups, whose results are in the order of the groups.

    Raises AllocationFailed for a malformed slice or claim of the cluster.
    """
    allocator = Allocator(cluster.slices, cluster.classes, cluster.claims)
    nodes, chance = _Nodes(cluster, allocator), random.Random(seed)  # noqa: S311 - no secret
    results: dict[str, GroupResult] = {}
    for group in sorted(groups, key=lambda one: -one.priority):
        claims = [_claim(group, spec, number) for number, spec in enumerate(group.claims)]
        results[group.name] = _Placing(cluster, allocator, nodes, claims, chance).result(group)
    free = free_devices(cluster, allocator)
    return Simulation(
        tuple(results[group.name] for group in groups),
        devices_in_use(cluster.slices, allocator.held, free),
        gpus_in_use(cluster.slices, allocator.held),
        fragments(cluster.slices, free),
    )


class _Nodes:
    """The nodes with what pods hold there: what does not fit on one does not fit on one that is like it."""

    def __init__(self, cluster: SimulatedCluster, allocator: Allocator) -> None:
        self._patterns = cluster.patterns
        self._allocator = allocator
        self._held: list[Counter[Hashable]] = [Counter() for _ in cluster.nodes]
        self._states: list[Hashable] = [None] * len(cluster.nodes)

    def count(self, node: int, claims: Iterable[Object], change: int) -> None:
        """Count claims that get their devices on the node (1), or give them back (-1)."""
        held = self._held[node]
        for claim in claims:
            (self._allocator.assume if change > 0 else self._allocator.release)(claim)
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


class _Placing:
    """Places the pods of one group, which all have the same claims."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        allocator: Allocator,
        nodes: _Nodes,
        claims: Sequence[Object],
        chance: random.Random,
    ) -> None:
        self._cluster = cluster
        self._allocator = allocator
        self._nodes = nodes
        self._claims = claims
        self._chance = chance
        self._candidates = list(range(len(cluster.nodes)))
        self._unfit: set[Hashable] = set()

    def result(self, group: PodGroup) -> GroupResult:
        """Place gangs, or pods, until one does not fit: then the next ones do not fit either."""
        used: set[int] = set()
        placed = 0
        why: tuple[Why, ...] = ()
        error = None
        while placed < group.pods:
            members: list[Placed] = []
            try:
                while len(members) < group.gang and (one := self._place()) is not None:
                    members.append(one)
                if len(members) < group.gang:
                    why = self._why(len(members), group.gang)
            except AllocationFailed as failure:
                error = f"{failure.what}: {failure.way_out}" if failure.way_out else failure.what
            if len(members) < group.gang:
                for node, claims in members:
                    self._nodes.count(node, claims, -1)
                break
            placed += group.gang
            used.update(node for node, _ in members)
        return GroupResult(group.name, group.pods, placed, group.pods - placed, len(used), why, error)

    def _why(self, members: int, gang: int) -> tuple[Why, ...]:
        # What is in the way of a gang is in the way of the first member beside those that have a place.
        part = (Why(f"{members} of the {gang} pods of a gang find a place"),) if gang > 1 else ()
        return (*part, *Reasons(self._cluster, self._allocator).of(self._claims))

    def _place(self) -> Placed | None:
        """Place one pod; None if it fits nowhere. Raises AllocationFailed for claims that are wrong."""
        candidates = self._candidates
        while candidates:
            place = self._chance.randrange(len(candidates))
            node = candidates[place]
            held = self._allocate(node)
            if held is not None:
                self._nodes.count(node, held, 1)
                return node, held
            # The last one fills the gap, which takes constant time.
            candidates[place] = candidates[-1]
            candidates.pop()
        return None

    def _allocate(self, node: int) -> list[Object] | None:
        """The claims with devices of a node; None if it has not enough."""
        state = self._nodes.state(node)
        if state in self._unfit:
            return None
        try:
            allocations = self._allocator.allocate(self._cluster.nodes[node], self._claims)
        except PoolInvalid:
            return None
        if allocations is None:
            self._unfit.add(state)
            return None
        return [
            {**claim, "status": {"allocation": allocation}}
            for claim, allocation in zip(self._claims, allocations, strict=True)
        ]


def _claim(group: PodGroup, spec: Mapping[str, Any], number: int) -> Object:
    """A claim of a pod of a group; all its pods have claims of the same names."""
    name = f"{group.name}-{number}"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": SIMULATION, "uid": name},
        "spec": defaulted_claim_spec(spec),
    }
