"""Why a pod cannot go to a node at all, whatever devices the node has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubernetes_rules.allocator.allocate import AllocationFailed
from kubernetes_rules.allocator.node_selection import read_node, selects
from kubernetes_rules.allocator.published import Selection

Object = Mapping[str, Any]

_BLOCKING = ("NoSchedule", "NoExecute")


def closed(pod: Object | None, node: Object, claims: Sequence[Object]) -> str | None:
    """The first reason that is found; None when nothing but devices decides.

    CPU, memory and pod affinity are not looked at. Raises AllocationFailed for an unreadable selector.
    """
    for claim in claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        selector = allocation.get("nodeSelector")
        if selector is not None and not selects(
            Selection(node_name=None, all_nodes=False, terms=selector), read_node(node)
        ):
            return f"the claim {claim['metadata']['name']} has its devices elsewhere"
    if pod is None:
        return None
    spec = pod["spec"]
    labels = node["metadata"].get("labels") or {}
    for key, value in sorted((spec.get("nodeSelector") or {}).items()):
        if labels.get(key) != value:
            return f"the pod's node selector {key}={value} is not a label of it"
    return _affinity(spec, node) or _node_taint(spec, node)


def _affinity(spec: Object, node: Object) -> str | None:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    try:
        if required is not None and not selects(
            Selection(node_name=None, all_nodes=False, terms=required), read_node(node)
        ):
            return "the pod's required node affinity is not for it"
    except AllocationFailed as error:
        return f"the pod's node affinity cannot be read: {error.what}"
    return None


def _node_taint(spec: Object, node: Object) -> str | None:
    mine = spec.get("tolerations") or ()
    taints = list((node.get("spec") or {}).get("taints") or ())
    if (node.get("spec") or {}).get("unschedulable"):
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    for taint in taints:
        if taint["effect"] in _BLOCKING and not any(_tolerates(one, taint) for one in mine):
            if taint["key"] == "node.kubernetes.io/unschedulable":
                return "it is cordoned"
            return f"the pod does not tolerate its taint {taint_text(taint)}"
    return None


def _tolerates(toleration: Object, taint: Object) -> bool:
    """core/v1 Toleration.ToleratesTaint."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if (toleration.get("operator") or "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def taint_text(taint: Object) -> str:
    """``key=value:effect`` as kubectl writes it."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"
