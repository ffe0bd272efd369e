"""Finds why pods wait in a simulation: what ``gpuctl explain`` says of each node, summed over like nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuctl.cli.cluster import Object
from gpuctl.explain.findings import FITS, Outcome
from gpuctl.explain.judge import Judged, judge
from gpuctl.explain.snapshot import Snapshot
from gpuctl.simulate.cluster import SimulatedCluster
from gpuctl.simulate.results import Why
from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator
from kubernetes_rules.allocator.held import Held
from kubernetes_rules.allocator.published import DeviceId, PoolId
from kubernetes_rules.preemption.cluster import Asked

SIMULATION = "simulation"
"""The namespace of the claims of simulated pods."""

MOST = 8
"""How many reasons are given for a group; those left out concern fewer devices."""

_OF_ONE_NODE = frozenset({"in-use", "counters", "capacity", "too-few", "taint", "node"})
"""The kinds of findings about one node. Reports about its devices say the same, and can be summed."""


@dataclass(frozen=True, slots=True)
class _Holding:
    """A device that a claim holds: all of it (``share`` is None), or a share, by capacities in billionths."""

    device: DeviceId
    claim: str
    share: tuple[tuple[str, int], ...] | None

    def as_claim(self) -> Object:
        """A claim that holds this device and nothing else."""
        namespace, _, name = self.claim.partition("/")
        result: Object = self.device._asdict()
        if self.share is not None:
            consumed = {capacity: f"{nanos}n" for capacity, nanos in self.share}
            result |= {"shareID": "simulated", "consumedCapacity": consumed}
        return {
            "metadata": {"namespace": namespace, "name": name},
            "status": {"allocation": {"devices": {"results": [result]}}},
        }


class Reasons:
    """Explains why pods wait, for a cluster at one moment and what claims hold then."""

    def __init__(self, cluster: SimulatedCluster, allocator: Allocator) -> None:
        self._cluster = cluster
        self._allocator = allocator
        self._slices: dict[str, list[Object]] = {}
        for one in cluster.slices:
            # The empty name is that of slices for several nodes.
            self._slices.setdefault(one["spec"].get("nodeName") or "", []).append(one)
        self._holdings = _holdings(allocator.held)

    def of(self, claims: Sequence[Object]) -> tuple[Why, ...]:
        """Why no node has room for these claims of one pod, the most devices first."""
        snapshot, weights = self._representatives(claims)
        # The nodes that are alike need to be judged only once: a simulation may have very many nodes.
        judged = judge(snapshot, Asked(None, tuple(claims)), self._allocator)
        general = [Why(one.message) for one in judged.findings if one.kind not in _OF_ONE_NODE]
        counted = [Why(reason, *numbers) for reason, numbers in _counted(judged, weights).items()]
        counted.sort(key=lambda why: (-why.devices, why.reason))
        return (*general[:MOST], *counted[:MOST])

    def _representatives(self, claims: Sequence[Object]) -> tuple[Snapshot, Mapping[str, int]]:
        """A cluster with one node of each kind, and how many nodes each of these represents.

        Nodes are alike if they publish the same, and claims hold the same of what matters to these ones.
        """
        first, weights = dict[Hashable, Object](), Counter[str]()
        matter: dict[int, Collection[str] | None] = {}
        for node, pattern in zip(self._cluster.nodes, self._cluster.patterns, strict=True):
            if pattern not in matter:
                matter[pattern] = self._matter(node, claims)
            names = matter[pattern]
            # Without the pool, whose name differs from node to node.
            held = Counter(
                (one.device.device, one.claim, one.share)
                for one in self._held_on(node["metadata"]["name"])
                if names is None or one.device.device in names
            )
            known = first.setdefault((pattern, frozenset(held.items())), node)
            weights[known["metadata"]["name"]] += 1
        kept = ("", *weights)
        snapshot = Snapshot(
            nodes=tuple(first.values()),
            slices=tuple(one for name in kept for one in self._slices.get(name, ())),
            classes=self._cluster.classes,
            claims=tuple(one.as_claim() for name in kept for one in self._held_on(name)),
        )
        return snapshot, weights

    def _held_on(self, node: str) -> Iterator[_Holding]:
        """What claims hold of the devices that only this node can use; of those of several nodes for ""."""
        specs = (one["spec"] for one in self._slices.get(node, ()))
        for pool in sorted({PoolId(spec["driver"], spec["pool"]["name"]) for spec in specs}):
            yield from self._holdings.get(pool, ())

    def _matter(self, node: Object, claims: Sequence[Object]) -> Collection[str] | None:
        """The names of the node's devices that decide about these claims; None if all of them may."""
        try:
            view = self._allocator.view(node)
            found = {
                device.id.device
                for claim in self._allocator.requested(view, claims)
                for alternatives in claim.requests
                for request in alternatives
                for device in view.devices
                if self._allocator.selectors.first_false(device, request.selectors) is None
            }
        except AllocationFailed:
            return None
        # Another device may have taken the counters.
        has_counters = any(one.consumes for one in view.devices if one.id.device in found)
        return None if has_counters else found


def _holdings(held: Held) -> dict[PoolId, list[_Holding]]:
    """What claims hold, by pool."""
    found: dict[PoolId, list[_Holding]] = {}
    for device, claims in held.exclusive.items():
        found.setdefault(device.pool_id, []).extend(_Holding(device, claim, None) for claim in claims)
    for device, shares in held.shares.items():
        found.setdefault(device.pool_id, []).extend(
            _Holding(device, claim, tuple(sorted(share.items()))) for claim, share in shares
        )
    return found


def _counted(judged: Judged, weights: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """How many devices and nodes each reason concerns; it names the request if there are several."""
    found: dict[str, tuple[int, int]] = {}
    several = len(judged.reports) > 1
    for report in judged.reports:
        where = f"{report.request}: " if several else ""
        for node in report.nodes:
            weight = weights[node.node]
            by_reason: Counter[str] = Counter()
            for outcome in node.outcomes:
                by_reason[f"{where}{_reason(outcome)}"] += len(outcome.devices)
            for reason, devices in by_reason.items():
                before = found.get(reason, (0, 0))
                found[reason] = (before[0] + devices * weight, before[1] + weight)
            if not node.outcomes:
                reason = f"{where}{node.closed or '; '.join(node.pools) or 'publishes no devices'}"
                found[reason] = (0, found.get(reason, (0, 0))[1] + weight)
    return found


def _reason(outcome: Outcome) -> str:
    """Why devices are ruled out; names the groups of pods that hold them, not their claims."""
    if outcome.gate == FITS:
        return "free, but not enough on one node"
    holders = ", ".join(sorted({_holder(claim) for claim in outcome.claims}))
    match outcome.gate:
        case "in-use":
            return f"in use by {holders}"
        case "counters" if holders:
            return f"their GPU is taken in another form by {holders}"
        case "capacity" if holders:
            return f"too little is left next to {holders}"
        case _:
            return outcome.reason


def _holder(claim: str) -> str:
    namespace, _, name = claim.partition("/")
    return f"pods of {name.rpartition('-')[0]}" if namespace == SIMULATION else "earlier claims"
