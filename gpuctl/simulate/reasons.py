"""Finds why pods wait in a simulation: what ``gpuctl explain`` says of each node, summed over like nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from gpuctl.explain.findings import FITS, Outcome
from gpuctl.explain.judge import Asked, Judged, judge
from gpuctl.explain.snapshot import Object, Snapshot
from gpuctl.simulate.cluster import SimulatedCluster
from gpuctl.simulate.results import Why
from kubernetes_rules.allocator.held import Held
from kubernetes_rules.allocator.published import DeviceId, PoolId

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

    def __init__(self, cluster: SimulatedCluster, held: Held) -> None:
        self._cluster = cluster
        self._held = held
        self._known: tuple[Snapshot, Mapping[str, int]] | None = None

    def of(self, claims: Sequence[Object]) -> tuple[Why, ...]:
        """Why no node has room for these claims of one pod, the most devices first."""
        if self._known is None:
            self._known = self._representatives()
        snapshot, weights = self._known
        # The nodes that are alike need to be judged only once: a simulation may have very many nodes.
        judged = judge(snapshot, Asked(None, tuple(claims)))
        general = [Why(one.message) for one in judged.findings if one.kind not in _OF_ONE_NODE]
        counted = [Why(reason, *numbers) for reason, numbers in _counted(judged, weights).items()]
        counted.sort(key=lambda why: (-why.devices, why.reason))
        return (*general[:MOST], *counted[:MOST])

    def _representatives(self) -> tuple[Snapshot, Mapping[str, int]]:
        """A cluster with one node of each kind, and how many nodes each of these represents.

        Nodes are alike if they publish the same and claims hold the same there.
        """
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
            holdings = (one for pool in own for one in by_pool.get(pool, ()))
            # Without the pool, whose name differs from node to node.
            held = Counter((one.device.device, one.claim, one.share) for one in holdings)
            known = first.setdefault((pattern, frozenset(held.items())), node)
            weights[known["metadata"]["name"]] += 1
        kept = {"", *weights}
        # The empty name is that of slices for several nodes.
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
