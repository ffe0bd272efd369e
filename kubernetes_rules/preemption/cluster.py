"""What a pod asks for, where it could run apart from devices, and a snapshot of the cluster around it.

What did not change since the snapshot before is taken from that one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kubernetes_rules.allocator.allocate import Allocator
from kubernetes_rules.pod_claims import (
    ExtendedResources,
    by_claim,
    claim_entries,
    extended_claim,
    is_extended,
    is_made_for,
    provides,
)
from kubernetes_rules.pod_resources import COMPUTE, HUGE, amounts_of, container_total
from kubernetes_rules.preemption.units import Budgets, Units, is_ending, node_of, units_of
from kubernetes_rules.quantity import Quantity
from kubernetes_rules.selectors import (
    NodeSelectorInvalid,
    label_selector_matches,
    missing_node_label,
    node_affinity_matches,
    node_selector_matches,
    read_node,
)
from kubernetes_rules.taints import CORDONED, tainted_slices, untolerated_taint

Json = Mapping[str, Any]
Object = dict[str, Any]
Objects = Sequence[Object]
Domain = tuple[str, str]
"""A label's key and value: the nodes that have it."""

_PODS = "pods"
_SCHEDULED_VOLUMES = {
    "persistentVolumeClaim": "a volume of a PersistentVolumeClaim",
    "ephemeral": "an ephemeral volume",
    "gcePersistentDisk": "a disk that nodes cannot share",
    "awsElasticBlockStore": "a disk that nodes cannot share",
    "iscsi": "a disk that nodes cannot share",
    "rbd": "a disk that nodes cannot share",
}


def unjudged(pod: Json) -> tuple[str, ...]:
    """What the pod has that these rules cannot judge; empty if they can."""
    return tuple(dict.fromkeys(_unjudged(pod["spec"])))


def _unjudged(spec: Json) -> Iterator[str]:
    affinity = spec.get("affinity") or {}
    for name, text in (("podAffinity", "affinity to pods"), ("podAntiAffinity", "anti-affinity to pods")):
        if (affinity.get(name) or {}).get("requiredDuringSchedulingIgnoredDuringExecution"):
            yield text
    spread = spec.get("topologySpreadConstraints") or ()
    if any(one.get("whenUnsatisfiable") != "ScheduleAnyway" for one in spread):
        yield "topology spread constraints"
    for volume in spec.get("volumes") or ():
        yield from (text for name, text in _SCHEDULED_VOLUMES.items() if volume.get(name) is not None)
    for container in _containers(spec):
        if any(one.get("hostPort") for one in container.get("ports") or ()):
            yield "host ports"
    if spec.get("schedulerName", "default-scheduler") != "default-scheduler":
        yield f"the scheduler {spec['schedulerName']}"
    if spec.get("schedulingGates"):
        yield "scheduling gates"
    group = (spec.get("schedulingGroup") or {}).get("podGroupName")
    if group:
        yield f"scheduling together with the pods of the group {group}"


def closed(pod: Json | None, node: Json, claims: Sequence[Json]) -> str | None:
    """Why a pod cannot go to a node, whatever devices it has; None if only devices decide.

    Does not consider CPU, memory and pod affinity. Raises NodeSelectorInvalid for an allocation with an
    unreadable selector.
    """
    for claim in claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        selector = allocation.get("nodeSelector")
        if selector is not None and not node_selector_matches(selector, read_node(node)):
            return f"the claim {claim['metadata']['name']} has its devices on another node"
    if pod is None:
        return None
    spec = pod["spec"]
    missing = missing_node_label(spec.get("nodeSelector") or {}, read_node(node))
    if missing is not None:
        return f"it lacks the label {missing[0]}={missing[1]} of the pod's node selector"
    return _affinity(spec, node) or _node_taint(spec, node)


def _affinity(spec: Json, node: Json) -> str | None:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    try:
        if required is not None and not node_affinity_matches(required, read_node(node)):
            return "it does not match the pod's required node affinity"
    except NodeSelectorInvalid as error:
        return f"the pod's node affinity cannot be read: {error.what}"
    return None


def _node_taint(spec: Json, node: Json) -> str | None:
    own = node.get("spec") or {}
    taints = list(own.get("taints") or ())
    # The node controller adds this taint to a cordoned node, but the scheduler counts the field by itself.
    if own.get("unschedulable"):
        taints.append(CORDONED)
    taint = untolerated_taint(taints, spec.get("tolerations") or ())
    if taint is None:
        return None
    if taint["key"] == CORDONED["key"]:
        return "it is cordoned"
    return f"the pod does not tolerate its taint {_taint_text(taint)}"


def _taint_text(taint: Json) -> str:
    """``key=value:effect`` as kubectl writes it."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def forbidden_domains(pod: Json, repelling: Iterable[tuple[Json, Json]]) -> frozenset[Domain]:
    """Where other pods' required anti-affinity may keep the pod away.

    ``repelling`` are pods that have one, each with its node. A selector of namespaces counts as if it
    selected all of them.
    """
    labels, namespace = pod["metadata"].get("labels") or {}, pod["metadata"]["namespace"]
    found = set()
    for other, node in repelling:
        for term in anti_affinity(other):
            names = term.get("namespaces") or ()
            inside = namespace in (names or (other["metadata"]["namespace"],))
            selector = term.get("labelSelector")
            if selector is None or not (inside or term.get("namespaceSelector") is not None):
                continue
            key = term["topologyKey"]
            value = (node["metadata"].get("labels") or {}).get(key)
            if value is not None and label_selector_matches(selector, labels):
                found.add((key, value))
    return frozenset(found)


def anti_affinity(pod: Json) -> Sequence[Json]:
    """The terms of a pod's required anti-affinity to pods."""
    own = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
    return own.get("requiredDuringSchedulingIgnoredDuringExecution") or ()


def is_in(node: Json, domains: Iterable[Domain]) -> bool:
    """Whether a node is in one of the domains."""
    labels = node["metadata"].get("labels") or {}
    return any(labels.get(key) == value for key, value in domains)


def pod_amounts_on(pod: Json) -> dict[str, int]:
    """What a pod takes of a node: one of ``pods``, thousandths of a CPU, whole units of everything else.

    Resources that it has by a claim are not among them. Go: computePodResourceRequest in
    scheduler/framework/plugins/noderesources, and PodRequests in component-helpers/resource.
    """
    spec = pod["spec"]
    total = container_total(spec, "requests")
    own = amounts_of(spec.get("resources") or {}, "requests")
    total |= {name: amount for name, amount in own.items() if name in COMPUTE or name.startswith(HUGE)}
    for name, amount in amounts_of({"requests": spec.get("overhead") or {}}, "requests").items():
        total[name] = total[name].plus(amount) if name in total else amount
    held = by_claim(pod)
    found = {name: _units(name, amount) for name, amount in total.items() if name not in held}
    return {**{name: amount for name, amount in found.items() if amount}, _PODS: 1}


def lacking(asked: Mapping[str, int], node: Json, used: Mapping[str, int]) -> dict[str, int]:
    """What a node lacks of what a pod asks for, beside what other pods use; empty if it has enough.

    A node without ``status.allocatable`` counts as large enough. Extended resources that no device plugin of
    the node provides are devices of a claim.
    """
    allocatable = (node.get("status") or {}).get("allocatable")
    if allocatable is None:
        return {}
    short = {}
    for name, amount in asked.items():
        if is_extended(name) and not provides(node, name):
            continue
        left = _parsed(name, str(allocatable.get(name, "0"))) - used.get(name, 0)
        if amount > left:
            short[name] = amount - left
    return short


def added_up(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum by name."""
    total: dict[str, int] = {}
    for one in amounts:
        for name, amount in one.items():
            total[name] = total.get(name, 0) + amount
    return total


@lru_cache(maxsize=4096)
def _parsed(name: str, text: str) -> int:
    return _units(name, Quantity.parse(text))


def _units(name: str, amount: Quantity) -> int:
    return amount.scaled(3 if name == "cpu" else 0)


def _containers(spec: Json) -> Iterator[Json]:
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a pod asks for, or a claim alone (``pod`` is None then).

    ``claims`` may have their devices already or not. The claim for ``extended`` resources may differ from
    node to node.
    """

    pod: Object | None
    claims: tuple[Object, ...]
    extended: ExtendedResources | None = None

    def on(self, node: Object) -> tuple[Object, ...]:
        """The claims that still need devices, on one node."""
        special = self.extended.claim_on(node) if self.extended else None
        bare = tuple(one for one in self.claims if not is_allocated(one))
        return (*bare, special) if special else bare

    def missing_on(self, node: Object) -> str | None:
        """Why the node can never give one of the extended resources."""
        return self.extended.missing_on(node) if self.extended else None

    def shortage_on(self, node: Object) -> str | None:
        """Which extended resource the node's device plugin has too little of now."""
        return self.extended.shortage_on(node) if self.extended else None


def asked_of(
    pod: Object,
    claims: Mapping[tuple[str, str], Object],
    classes: Sequence[Json],
    nodes: Sequence[Json],
    pods: Sequence[Json],
) -> Asked | str:
    """What a pod asks for, or why that cannot be said, as a sentence.

    ``claims`` are by namespace and name, ``pods`` are those on nodes.
    """
    namespace = str(pod["metadata"]["namespace"])
    found = []
    for entry in claim_entries(pod):
        if entry.claim is None:
            return f"its claim {entry.name} is not made yet"
        claim = claims.get((namespace, entry.claim))
        if claim is None:
            return f"its claim {entry.claim} does not exist"
        if claim["metadata"].get("deletionTimestamp"):
            return f"its claim {entry.claim} is being deleted"
        if entry.template is not None and not is_made_for(claim, pod):
            return f"its claim {entry.claim} belongs to another pod"
        found.append(claim)
    special = extended_claim(pod)
    if special is None:
        return Asked(pod, tuple(found), ExtendedResources(pod, classes, nodes, pods))
    claim = claims.get((namespace, special))
    return Asked(pod, (*found, claim)) if claim else f"its claim {special} does not exist"


def is_allocated(claim: Object) -> bool:
    """Whether a claim has its devices."""
    return bool((claim.get("status") or {}).get("allocation"))


@dataclass(frozen=True, slots=True)
class _Here:
    """What decides about victims on a node, apart from devices that nobody can free.

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
        before: Cluster | None = None,
    ) -> None:
        """Raises AllocationFailed if a slice, or the allocation of a claim, is malformed."""
        self.nodes = {str(one["metadata"]["name"]): one for one in nodes}
        self.units: Units = units_of(pods, claims)
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
        self._used: dict[str, Mapping[str, int]] = {}
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
        """A value for each node; another one if something changed that decides about victims there."""
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

    def used(self, node: str) -> Mapping[str, int]:
        """What the pods on a node use of its resources, without those that are being deleted."""
        known = self._used.get(node)
        if known is None:
            staying = (pod for pod in self.units.there.get(node, ()) if not is_ending(pod))
            known = self._used[node] = added_up(map(pod_amounts_on, staying))
        return known

    def used_by_ending(self, node: str) -> Mapping[str, int]:
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
        everywhere = None in touched
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
