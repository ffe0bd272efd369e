"""Judges whether tolerations cover taints; the rule is one for the taints of nodes and of devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]

BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")
"""The effects of a taint that keep away what does not tolerate it; every other effect is ignored."""

CORDONED: Json = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
"""The taint that ``spec.unschedulable`` of a node stands for (Go: plugins/nodeunschedulable)."""


def tolerates(toleration: Json, taint: Json) -> bool:
    """Whether a toleration covers a taint; no key means any key, no effect any effect, no operator Equal.

    Both are JSON objects: Toleration and Taint of core/v1, or DeviceToleration and DeviceTaint of
    resource.k8s.io/v1. An operator other than Equal and Exists covers nothing: Lt and Gt of core/v1 are
    behind a feature gate that is off (TaintTolerationComparisonOperators). Go: ToleratesTaint in
    core/v1/toleration.go and in dynamic-resource-allocation/resourceclaim/devicetoleration.go.
    """
    for field in ("effect", "key"):
        if toleration.get(field) and toleration[field] != (taint.get(field) or ""):
            return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Equal":
        return (toleration.get("value") or "") == (taint.get("value") or "")
    return bool(operator == "Exists")


def untolerated_taint(taints: Iterable[Json], tolerations: Sequence[Json]) -> Json | None:
    """The first taint that keeps a pod or a claim away, None if there is none.

    ``taints`` are those of a node or a device, ``tolerations`` those of a pod or a request.
    Go: FindMatchingUntoleratedTaint in component-helpers/scheduling/corev1/helpers.go.
    """
    for taint in taints:
        if taint.get("effect") in BLOCKING_EFFECTS and not any(tolerates(one, taint) for one in tolerations):
            return taint
    return None


def tolerated_seconds(taint: Json, tolerations: Iterable[Json]) -> int | None:
    """For how long a NoExecute taint of a device is tolerated: 0 without a toleration, None for ever.

    Only tolerations that name the effect NoExecute count; of several with seconds the shortest does, and
    negative seconds are none. Go: claimEvictionTime in devicetainteviction/device_taint_eviction.go.
    """
    seconds: list[int] = []
    for one in tolerations:
        if one.get("effect") == "NoExecute" and tolerates(one, taint):
            if one.get("tolerationSeconds") is None:
                return None
            seconds.append(max(0, int(one["tolerationSeconds"])))
    return min(seconds, default=0)
