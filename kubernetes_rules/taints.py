"""Taints: those of DeviceTaintRules, which tolerations cover them, and when they evict the pods of a claim.

Nodes and devices have one rule for tolerations; the rest is for devices (device taint eviction, KEP-5055).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

Json = Mapping[str, Any]
Object = dict[str, Any]

_SELECTED_BY = ("driver", "pool", "device")

Pools = Mapping[tuple[str, str], Sequence[Json]]
"""The slices of each pool that count, by its driver and name."""

_BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")
"""The effects of a taint that keep away what does not tolerate it; every other effect is ignored."""

CORDONED: Json = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
"""The taint that ``spec.unschedulable`` of a node stands for (Go: plugins/nodeunschedulable)."""


def rule_selects(rule: Json, driver: str, pool: str, device: str) -> bool:
    """Whether a DeviceTaintRule is about a device.

    A rule without ``deviceSelector`` is about none, one with an empty selector about all; a field that is
    absent or null allows any name. Go: ruleMatchesDevice in devicetainteviction/device_taint_eviction.go.
    """
    selector = rule["spec"].get("deviceSelector")
    if selector is None:
        return False
    return all(
        selector.get(field) in (None, name)
        for field, name in zip(_SELECTED_BY, (driver, pool, device), strict=True)
    )


def tainted_slices(slices: Iterable[Object], rules: Sequence[Json]) -> list[Object]:
    """The ResourceSlices with the taint of each DeviceTaintRule behind the own taints of what it selects.

    Nothing is changed in place; what no rule selects is passed on as it is. Go: applyPatches in
    dynamic-resource-allocation/resourceslice/tracker/tracker.go.
    """
    return [_tainted(one, rules) for one in slices] if rules else list(slices)


def _tainted(one: Object, rules: Sequence[Json]) -> Object:
    spec = one["spec"]
    devices = []
    for device in spec.get("devices") or ():
        added = [
            rule["spec"]["taint"]
            for rule in rules
            if rule_selects(rule, spec["driver"], spec["pool"]["name"], device["name"])
        ]
        devices.append({**device, "taints": [*(device.get("taints") or ()), *added]} if added else device)
    return {**one, "spec": {**spec, "devices": devices}} if devices else one


def eviction_time(results: Iterable[Json], pools: Pools, rules: Sequence[Json]) -> datetime | None:
    """When pods that use these devices have to go, None if never: the earliest end of what taints let them.

    ``results`` are those of an allocation, with the tolerations of their requests. NoExecute taints of
    ``pools`` (``newest_slices`` of the ResourceSlices as published) and of ``rules`` (DeviceTaintRules)
    count, from their ``timeAdded`` on.
    Go: claimEvictionTime in devicetainteviction/device_taint_eviction.go.
    """
    moments = []
    for result in results:
        for taint in _executing(result, pools, rules):
            seconds = tolerated_seconds(taint, result.get("tolerations") or ())
            if seconds is not None:
                added = datetime.fromisoformat(taint["timeAdded"])
                moments.append(added + timedelta(seconds=seconds))
    return min(moments, default=None)


def _executing(result: Json, pools: Pools, rules: Sequence[Json]) -> Iterator[Json]:
    """The NoExecute taints on an allocated device, from its slice and from rules."""
    driver, pool, name = result["driver"], result["pool"], result["device"]
    devices = (one for stored in pools.get((driver, pool), ()) for one in stored["spec"].get("devices") or ())
    device: Json = next((one for one in devices if one["name"] == name), {})
    yield from (taint for taint in device.get("taints") or () if _executes(taint))
    for rule in rules:
        taint = rule["spec"]["taint"]
        if _executes(taint) and rule_selects(rule, driver, pool, name):
            yield taint


def _executes(taint: Json) -> bool:
    return bool(taint.get("effect") == "NoExecute")


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
        if taint.get("effect") in _BLOCKING_EFFECTS and not any(tolerates(one, taint) for one in tolerations):
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
