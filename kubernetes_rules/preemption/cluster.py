"""A snapshot of a cluster in which room is looked for; what did not change is taken from the one before."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubernetes_rules.allocator.allocate import Allocator
from kubernetes_rules.preemption.asked import Asked, asked_of, is_allocated
from kubernetes_rules.preemption.pod_fit import added_up, anti_affinity, pod_amounts_on
from kubernetes_rules.preemption.preference import Budgets
from kubernetes_rules.preemption.units import Units, is_ending, node_of, units_of
from kubernetes_rules.taints import tainted_slices

Json = Mapping[str, Any]
Object = dict[str, Any]
Objects = Sequence[Object]
Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Here:
    """What decides about room on a node, apart from devices that nobody can free.

    ``members`` are the pods and claims of all units there, also those elsewhere, with None between units.
    """

    node: tuple[Any, ...]
    pods: tuple[Json, ...]
    members: tuple[Json | None, ...]

    def is_same(self, other: _Here) -> bool:
        return (
            self.node == other.node
            and _are_same(self.pods, other.pods)
            and _are_same(self.members, other.members)
        )


class Cluster:
    """One snapshot. All objects are JSON as the API serves it; they are kept, not copied.

    Objects that are the very same as in the snapshot ``before`` count as unchanged, so hand over those of one
    cache. The snapshot before cannot be used any more. Not thread-safe.
    """

    def __init__(
        self,
        nodes: Objects,
        slices: Objects,
        classes: Objects,
        claims: Objects,
        pods: Objects,
        budgets: Objects = (),
        taint_rules: Objects = (),
        groups: Objects = (),
        before: Cluster | None = None,
    ) -> None:
        """``groups`` are PodGroups of scheduling.k8s.io/v1beta1.

        Raises AllocationFailed if a slice, or the allocation of a claim, is malformed.
        """
        self.nodes = {str(one["metadata"]["name"]): one for one in nodes}
        self.groups = {
            (str(one["metadata"]["namespace"]), str(one["metadata"]["name"])): one for one in groups
        }
        self.units: Units = units_of(pods, claims, groups)
        self.budgets = Budgets(budgets)
        self._classes = classes
        self._claims = {_name(one): one for one in claims}
        self._on_nodes = [pod for there in self.units.there.values() for pod in there]
        self.repelling = [
            (pod, self.nodes[node_of(pod)])
            for pod in self._on_nodes
            if anti_affinity(pod) and node_of(pod) in self.nodes
        ]
        """The pods with required anti-affinity to others, each with its node."""
        self._used: dict[str, Amounts] = {}
        self.published = tuple(slices), tuple(classes), tuple(taint_rules)
        self._budgets = tuple(budgets)
        ending = {id(one) for one in self.units.ending}
        allocated = {_name(one): one for one in claims if is_allocated(one)}
        self._held = {name: one for name, one in allocated.items() if id(one) not in ending}
        self.decisions: dict[Hashable, Any] = {}
        """What was decided on this snapshot, by what was asked for."""
        self.tried: dict[Hashable, dict[str, tuple[object, Any]]] = {}
        """What was found on each node, with the state of the node, by what was asked for."""
        self._here = {
            name: _Here(_deciding(one), self.units.there.get(name, ()), self._members(name))
            for name, one in self.nodes.items()
        }
        self.states: dict[str, object] = {}
        """A value for each node; another one if something changed that decides about room there."""
        if before is None or not all(map(_are_same, self.published, before.published)):
            self.allocator = Allocator(tainted_slices(slices, taint_rules), classes, self._held.values())
            """Everything is in use that is allocated, without claims whose users are ending."""
            self.node_of_pool = _nodes_of_pools(slices)
            self.states = {name: object() for name in self.nodes}
        else:
            self.allocator = before.allocator
            self.node_of_pool = before.node_of_pool
            self.tried = before.tried
            self._take_over(before)

    def asked(self, pod: Object) -> Asked | str:
        """What a pod asks for, or why that cannot be said."""
        return asked_of(pod, self._claims, self._classes, list(self.nodes.values()), self._on_nodes)

    def used(self, node: str) -> Amounts:
        """What the pods on a node use of its resources, without those that are being deleted."""
        known = self._used.get(node)
        if known is None:
            staying = (pod for pod in self.units.there.get(node, ()) if not is_ending(pod))
            known = self._used[node] = added_up(map(pod_amounts_on, staying))
        return known

    def used_by_ending(self, node: str) -> Amounts:
        """What pods that are being deleted still use of a node."""
        return added_up(pod_amounts_on(pod) for pod in self.units.there.get(node, ()) if is_ending(pod))

    def _members(self, node: str) -> tuple[Json | None, ...]:
        units = self.units.on_node.get(node, ())
        return tuple(one for unit in units for one in (*unit.pods, *unit.claims, None))

    def _take_over(self, before: Cluster) -> None:
        """Bring the allocator up to date, and keep the state of each node where nothing changed."""
        changed = list(_changed(before._held, self._held))
        for old, _ in changed:
            if old is not None:
                self.allocator.release(old)
        for _, new in changed:
            if new is not None:
                self.allocator.assume(new)
        gone = {id(one): one for one in before.units.ending}
        now = {id(one): one for one in self.units.ending}
        affected: list[Json] = [claim for pair in changed for claim in pair if claim is not None]
        affected += [one for key, one in gone.items() if key not in now]
        affected += [one for key, one in now.items() if key not in gone]
        touched = {self.node_of_pool.get(pool) for claim in affected for pool in _pools(claim)}
        budgets = {
            str(one["metadata"]["namespace"])
            for listed, others in ((self._budgets, before._budgets), (before._budgets, self._budgets))
            for one in listed
            if not any(one is other for other in others)
        }
        # A pool that several nodes reach may change something on all of them.
        everywhere = None in touched or not _are_same(
            list(self.groups.values()), list(before.groups.values())
        )
        for name, here in self._here.items():
            known = before._here.get(name)
            stays = (
                not everywhere
                and known is not None
                and name not in touched
                and here.is_same(known)
                and not any(one and one["metadata"]["namespace"] in budgets for one in here.members)
            )
            self.states[name] = before.states[name] if stays else object()
        if self.states == before.states:
            self.decisions = before.decisions


def _changed(
    before: Mapping[Any, Object], now: Mapping[Any, Object]
) -> Iterator[tuple[Object | None, Object | None]]:
    """The allocated claims that differ, as they were and as they are."""
    for name, claim in before.items():
        if now.get(name) is not claim:
            yield claim, now.get(name)
    for name, claim in now.items():
        if name not in before:
            yield None, claim


def _pools(claim: Json) -> Iterator[tuple[str, str]]:
    for one in claim["status"]["allocation"].get("devices", {}).get("results") or ():
        yield one["driver"], one["pool"]


def _nodes_of_pools(slices: Iterable[Object]) -> dict[tuple[str, str], str | None]:
    """The node of each pool that is on one node only."""
    found: dict[tuple[str, str], str | None] = {}
    for one in slices:
        spec = one["spec"]
        key, node = (spec["driver"], spec["pool"]["name"]), spec.get("nodeName")
        found[key] = node if found.get(key, node) == node else None
    return found


def _deciding(node: Object) -> tuple[Any, ...]:
    """What decides about pods on a node; heartbeats change other parts."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    labels = node["metadata"].get("labels")
    return labels, spec.get("taints"), spec.get("unschedulable"), status.get("allocatable")


def _are_same(some: Sequence[Json | None], others: Sequence[Json | None]) -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))


def _name(one: Object) -> tuple[str, str]:
    return str(one["metadata"]["namespace"]), str(one["metadata"]["name"])
