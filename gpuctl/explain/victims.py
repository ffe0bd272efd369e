"""Says whose end would let a pod that waits have its devices, under each of three policies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpuctl.cli.cluster import Object
from gpuctl.explain.findings import Budget, Finding, Leaving, NodeVictims, PolicyVictims
from gpuctl.explain.snapshot import Snapshot
from kubernetes_rules.disruption_budgets import budget_selects
from kubernetes_rules.preemption.cluster import Asked
from kubernetes_rules.preemption.units import Unit, can_be_evicted
from kubernetes_rules.preemption.victims import Victims, best_victims, victims_on_nodes

MOVABLE = "gpu.nvidia.com/movable"
"""The annotation by which the owner of a pod allows it to be evicted for others: ``true``."""

HELD = frozenset({"in-use", "counters", "capacity", "constraint", "together", "too-few", "all"})
"""The kinds of findings about devices that others may hold."""


class Policy(StrEnum):
    """Which pods may go for another."""

    LOWER_PRIORITY = "lower-priority"
    MOVABLE = "movable"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class MayGo:
    """Whether a unit may go for a pod of this priority under a policy."""

    policy: Policy
    priority: int = 0

    def __call__(self, unit: Unit) -> bool:
        """Whether the policy and the Eviction API let the unit end."""
        if self.policy is Policy.LOWER_PRIORITY and unit.priority >= self.priority:
            return False
        if self.policy is Policy.MOVABLE and not all(map(_is_movable, unit.pods)):
            return False
        return can_be_evicted(unit)


def find_victims(
    asked: Asked, pod: Object, snapshot: Snapshot, policies: Sequence[Policy]
) -> tuple[tuple[Finding, ...], tuple[PolicyVictims, ...]]:
    """What to say first of a pod, and whose end makes room under each policy.

    Nothing if nobody's end can help, or nobody has to go. Raises ApiError, RuleError for a malformed object,
    and TooCostly.
    """
    cluster, priority = snapshot.cluster, int(pod["spec"].get("priority") or 0)
    found = []
    for policy in policies:
        may_go = MayGo(policy, priority)
        choice = best_victims(cluster, asked, may_go)
        if choice.kind == "waits":
            return (Finding("ending", choice.text),), ()
        if choice.kind == "unjudged":
            return (Finding("unjudged", f"whose end would help cannot be said: {choice.text}"),), ()
        if choice.kind in ("fits now", "never"):
            return (), ()
        on_nodes = victims_on_nodes(cluster, asked, may_go) if choice.kind == "victims" else ()
        why = "" if choice.kind == "victims" else choice.text
        found.append(PolicyVictims(policy.value, why, tuple(_on_nodes(on_nodes, snapshot.budgets))))
    lower = next(iter(found[0].victims), None) if policies[0] is Policy.LOWER_PRIORITY else None
    return ((_finding(lower, pod, policies),) if lower else ()), tuple(found)


def _finding(best: NodeVictims, pod: Object, policies: Sequence[Policy]) -> Finding:
    who = [f"{one.namespace}/{one.name}" for one in best.pods]
    some = ", ".join(who[:3]) + (f" and {len(who) - 3} more" if len(who) > 3 else "")
    message = f"it would fit on {best.node} if {some}, of lower priority, ended"
    if best.refused:
        message += ", which a budget forbids now"
    if len(policies) > 1:
        return Finding("victims", message)
    metadata = pod["metadata"]
    command = f"gpuctl explain pod {metadata['name']} -n {metadata['namespace']}"
    return Finding("victims", message, f"`{command}` shows who else could end")


def _on_nodes(found: Iterable[Victims], budgets: Sequence[Object]) -> Iterator[NodeVictims]:
    for one in found:
        if one.units:
            yield NodeVictims(
                one.node,
                tuple(
                    _leaving(pod, budgets, priority)
                    for unit in one.units
                    for pod, priority in zip(unit.pods, unit.priorities, strict=True)
                ),
                tuple(
                    f"{result['pool']}/{result['device']}"
                    for allocation in one.allocations
                    for result in (allocation.get("devices") or {}).get("results") or ()
                ),
                one.cost.violations,
                one.is_exact,
            )


def _leaving(pod: Mapping[str, Any], budgets: Sequence[Object], priority: int) -> Leaving:
    metadata = pod["metadata"]
    owners = metadata.get("ownerReferences") or ()
    owner = next((f"{one['kind']}/{one['name']}" for one in owners if one.get("controller")), None)
    return Leaving(
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        node=str(pod["spec"].get("nodeName") or ""),
        priority=priority,
        movable=_is_movable(pod),
        budgets=tuple(
            Budget(one["metadata"]["name"], int((one.get("status") or {}).get("disruptionsAllowed") or 0))
            for one in budgets
            if one["metadata"]["namespace"] == metadata["namespace"] and budget_selects(one, pod)
        ),
        since=(pod.get("status") or {}).get("startTime"),
        owner=owner,
    )


def _is_movable(pod: Mapping[str, Any]) -> bool:
    return (pod["metadata"].get("annotations") or {}).get(MOVABLE) == "true"
