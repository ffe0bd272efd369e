"""Why pods wait in a simulation: what ``gpuctl explain`` says of each node, added up over like nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.explain.findings import FITS, Outcome
from gpuctl.explain.judge import Asked, Judged, judge
from gpuctl.explain.snapshot import Snapshot
from gpuctl.simulate.cluster import SimulatedCluster
from gpuctl.simulate.results import Why
from kubernetes_rules.allocator.held import Held
from kubernetes_rules.allocator.published import DeviceId, PoolId

Object = dict[str, Any]

SIMULATION = "simulation"
"""The namespace of the claims of simulated pods."""

MOST = 8
"""How many reasons are given for a group; the others concern fewer devices."""

_OF_ONE_NODE = frozenset({"in-use", "counters", "capacity", "too-few", "taint", "node"})
"""Findings about one node, which are added up from the outcomes of its devices instead."""


@dataclass(frozen=True, slots=True)
class _Holding:
    """A device that a claim has: all of it, or a share with its capacity in billionths."""

    device: DeviceId
    claim: str
    share: tuple[tuple[str, int], ...] | None

    @property
    def look(self) -> Hashable:
        """What it has in common with that of another node of the same machine."""
        return self.device.device, self.claim, self.share

    def as_claim(self) -> Object:
        """A claim that has this and nothing else."""
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
    """The end of a simulation: the cluster, and what claims have."""

    def __init__(self, cluster: SimulatedCluster, held: Held) -> None:
        self._cluster = cluster
        self._held = held
        self._known: tuple[Snapshot, Mapping[str, int]] | None = None

    def of(self, claims: Sequence[Object]) -> tuple[Why, ...]:
        """Why no node has room for these claims of one pod, the most devices first."""
        if self._known is None:
            self._known = self._representatives()
        snapshot, weights = self._known
        judged = judge(snapshot, Asked(None, tuple(claims)))
        told = [one.message for one in judged.findings if one.kind not in _OF_ONE_NODE]
        counted = _counted(judged, weights)
        more = [Why(reason, devices, nodes) for reason, (devices, nodes) in counted.items()]
        more.sort(key=lambda why: (-why.devices, why.reason))
        return (*(Why(message) for message in told[:MOST]), *more[:MOST])

    def _representatives(self) -> tuple[Snapshot, Mapping[str, int]]:
        """A cluster with one node for all that are alike, and how many nodes each represents."""
        cluster = self._cluster
        pools: dict[str, set[PoolId]] = {}
        for one in cluster.slices:
            spec = one["spec"]
            pools.setdefault(spec.get("nodeName") or "", set()).add(
                PoolId(spec["driver"], spec["pool"]["name"])
            )
        by_pool = _holdings(self._held)
        first, weights = dict[Hashable, Object](), Counter[str]()
        for node, pattern in zip(cluster.nodes, cluster.patterns, strict=True):
            own = sorted(pools.get(node["metadata"]["name"], ()))
            looks = Counter(one.look for pool in own for one in by_pool.get(pool, ()))
            known = first.setdefault((pattern, frozenset(looks.items())), node)
            weights[known["metadata"]["name"]] += 1
        kept = {"", *weights}
        shown = sorted({pool for name in kept for pool in pools.get(name, ())})
        snapshot = Snapshot(
            nodes=tuple(first.values()),
            slices=tuple(one for one in cluster.slices if (one["spec"].get("nodeName") or "") in kept),
            classes=cluster.classes,
            claims=tuple(one.as_claim() for pool in shown for one in by_pool.get(pool, ())),
            taint_rules=(),
            quotas=(),
            unread=(),
        )
        return snapshot, weights


def _holdings(held: Held) -> dict[PoolId, list[_Holding]]:
    """What claims have, by pool."""
    found: dict[PoolId, list[_Holding]] = {}
    for device, claims in held.exclusive.items():
        found.setdefault(device.pool_id, []).extend(_Holding(device, claim, None) for claim in claims)
    for device, shares in held.shares.items():
        found.setdefault(device.pool_id, []).extend(
            _Holding(device, claim, tuple(sorted(share.items()))) for claim, share in shares
        )
    return found


def _counted(judged: Judged, weights: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Devices and nodes for each reason; a reason names its request where there are several."""
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
    """Why devices are ruled out, by the groups of pods that have them instead of by claims."""
    if outcome.gate == FITS:
        return "free, but not enough on one node"
    holders = ", ".join(sorted({_holder(claim) for claim in outcome.claims}))
    match outcome.gate:
        case "in-use":
            return f"in use by {holders}"
        case "counters" if holders:
            return f"their GPU is taken in another form by {holders}"
        case "capacity" if holders:
            return f"too little is left beside {holders}"
        case _:
            return outcome.reason


def _holder(claim: str) -> str:
    namespace, _, name = claim.partition("/")
    return (
        f"pods of {name.rpartition('-')[0]}" if namespace == SIMULATION else "claims that were there before"
    )
