"""Whether a pod could run on a node apart from its devices, as far as these rules can judge it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from kubernetes_rules.extended_resources import by_claim, is_extended, provides
from kubernetes_rules.pod_resources import COMPUTE, HUGE, amounts_of, container_total
from kubernetes_rules.quantity import Quantity
from kubernetes_rules.selectors import (
    NodeSelectorInvalid,
    label_selector_matches,
    missing_node_label,
    node_affinity_matches,
    node_selector_matches,
    read_node,
)
from kubernetes_rules.taints import CORDONED, untolerated_taint

Json = Mapping[str, Any]
Amounts = dict[str, int]
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


def pod_amounts_on(pod: Json) -> Amounts:
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


def lacking(asked: Mapping[str, int], node: Json, used: Mapping[str, int]) -> Amounts:
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


def added_up(amounts: Iterable[Mapping[str, int]]) -> Amounts:
    """The sum by name."""
    total: Amounts = {}
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
