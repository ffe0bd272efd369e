"""Judges whether a pod may be on a node at all, before its devices are looked at, and words what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kubernetes_rules.node_selectors import missing_label, read_node
from kubernetes_rules.tolerations import CORDONED, untolerated_taint

NO_NODES = "no nodes available to schedule pods"


def reason_against(pod: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    """Why the pod may not be on the node, empty when it may; node affinity is not looked at.

    Looked at are, in the order of the real scheduler: spec.unschedulable, taints, the node selector.
    """
    spec = node.get("spec", {})
    tolerations = pod["spec"].get("tolerations") or ()
    if spec.get("unschedulable") and untolerated_taint([CORDONED], tolerations):
        return "node(s) were unschedulable"
    if untolerated_taint(spec.get("taints") or (), tolerations):
        return "node(s) had untolerated taint(s)"
    if missing_label(pod["spec"].get("nodeSelector") or {}, read_node(node)):
        return "node(s) didn't match Pod's node affinity/selector"
    return ""


def fit_error(node_count: int, before_nodes: str, reasons: Sequence[str], *, may_preempt: bool = True) -> str:
    """Why a pod finds no place, as the real scheduler words it.

    ``before_nodes`` is a reason that holds whatever the node; otherwise ``reasons`` has one for each. No
    pod is ever preempted for devices, and the message says so at its end.
    """
    told = before_nodes
    if not before_nodes:
        counted = Counter(reasons)
        told = ", ".join(sorted(f"{count} {reason}" for reason, count in counted.items()))
    helpless = f"0/{node_count} nodes are available: {node_count} Preemption is not helpful for scheduling."
    ending = helpless if may_preempt else "not eligible due to preemptionPolicy=Never."
    return f"0/{node_count} nodes are available: {told}. preemption: {ending}"
