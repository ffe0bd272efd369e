"""Why a pod cannot go to a node at all, whatever devices the node has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubernetes_rules.selectors import (
    NodeSelectorInvalid,
    affinity_matches,
    missing_label,
    read_node,
    selector_matches,
)
from kubernetes_rules.taints import CORDONED, untolerated_taint

Object = Mapping[str, Any]


def closed(pod: Object | None, node: Object, claims: Sequence[Object]) -> str | None:
    """The first reason that is found; None when nothing but devices decides.

    CPU, memory and pod affinity are not looked at. Raises NodeSelectorInvalid for an allocation with an
    unreadable selector.
    """
    for claim in claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        selector = allocation.get("nodeSelector")
        if selector is not None and not selector_matches(selector, read_node(node)):
            return f"the claim {claim['metadata']['name']} has its devices elsewhere"
    if pod is None:
        return None
    spec = pod["spec"]
    missing = missing_label(spec.get("nodeSelector") or {}, read_node(node))
    if missing is not None:
        return f"the pod's node selector {missing[0]}={missing[1]} is not a label of it"
    return _affinity(spec, node) or _node_taint(spec, node)


def _affinity(spec: Object, node: Object) -> str | None:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    try:
        if required is not None and not affinity_matches(required, read_node(node)):
            return "the pod's required node affinity is not for it"
    except NodeSelectorInvalid as error:
        return f"the pod's node affinity cannot be read: {error.what}"
    return None


def _node_taint(spec: Object, node: Object) -> str | None:
    own = node.get("spec") or {}
    taints = list(own.get("taints") or ())
    if own.get("unschedulable"):
        taints.append(CORDONED)
    taint = untolerated_taint(taints, spec.get("tolerations") or ())
    if taint is None:
        return None
    if taint["key"] == CORDONED["key"]:
        return "it is cordoned"
    return f"the pod does not tolerate its taint {taint_text(taint)}"


def taint_text(taint: Object) -> str:
    """``key=value:effect`` as kubectl writes it."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"
