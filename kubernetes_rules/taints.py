"""Taints: which of them tolerations cover, what DeviceTaintRules add, and when pods of a claim are evicted.

The rule for tolerations is the same for nodes and devices; the rest is for devices (KEP-5055).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

Json = Mapping[str, Any]
Object = dict[str, Any]

Pools = Mapping[tuple[str, str], Sequence[Json]]
"""The slices of each pool's newest generation, by the pool's driver and name."""

_BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")
"""The effects that keep away pods and claims without a toleration.

The API says to treat an unknown effect like None, which does nothing.
"""

CORDONED: Json = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
"""The taint of a node with ``spec.unschedulable`` (Go: plugins/nodeunschedulable)."""


def taint_rule_selects(rule: Json, driver: str, pool: str, device: str) -> bool:
    """Whether a DeviceTaintRule selects a device.

    A rule without ``deviceSelector`` selects none, one with an empty selector selects all; a field that is
    absent or null allows any name. Go: ruleMatchesDevice in devicetainteviction/device_taint_eviction.go.
    """
    selector = rule["spec"].get("deviceSelector")
    if selector is None:
        return False
    names = {"driver": driver, "pool": pool, "device": device}
    return all(selector.get(field) in (None, name) for field, name in names.items())


def tainted_slices(slices: Iterable[Object], rules: Sequence[Json]) -> list[Object]:
    """The ResourceSlices, with the taint of each DeviceTaintRule appended to those of the devices it selects.

    Nothing is changed in place. Go: applyPatches in
    dynamic-resource-allocation/resourceslice/tracker/tracker.go.
    """
    return [_tainted_slice(one, rules) for one in slices] if rules else list(slices)


def _tainted_slice(one: Object, rules: Sequence[Json]) -> Object:
    spec = one["spec"]
    devices = []
    for device in spec.get("devices") or ():
        added = [
            rule["spec"]["taint"]
            for rule in rules
            if taint_rule_selects(rule, spec["driver"], spec["pool"]["name"], device["name"])
        ]
        devices.append({**device, "taints": [*(device.get("taints") or ()), *added]} if added else device)
    return {**one, "spec": {**spec, "devices": devices}} if devices else one


def eviction_time(results: Iterable[Json], pools: Pools, rules: Sequence[Json]) -> datetime | None:
    """When pods that use these devices are evicted: as soon as one taint is no longer tolerated; None: never.

    ``results`` are those of an allocation, with the tolerations of their requests. NoExecute taints count,
    from their ``timeAdded`` on: those in ``pools`` (``newest_slices`` of the ResourceSlices as published) and
    those of ``rules`` (DeviceTaintRules). Go: claimEvictionTime in
    devicetainteviction/device_taint_eviction.go.
    """
    moments = []
    for result in results:
        for taint in _no_execute_taints(result, pools, rules):
            seconds = tolerated_seconds(taint, result.get("tolerations") or ())
            if seconds is not None:
                added = datetime.fromisoformat(taint["timeAdded"])
                moments.append(added + timedelta(seconds=seconds))
    return min(moments, default=None)


def _no_execute_taints(result: Json, pools: Pools, rules: Sequence[Json]) -> Iterator[Json]:
    """The NoExecute taints of an allocated device, from its slice and from rules."""
    driver, pool, name = result["driver"], result["pool"], result["device"]
    devices = (one for stored in pools.get((driver, pool), ()) for one in stored["spec"].get("devices") or ())
    device: Json = next((one for one in devices if one["name"] == name), {})
    yield from (taint for taint in device.get("taints") or () if taint.get("effect") == "NoExecute")
    for rule in rules:
        taint = rule["spec"]["taint"]
        if taint.get("effect") == "NoExecute" and taint_rule_selects(rule, driver, pool, name):
            yield taint


def tolerates(toleration: Json, taint: Json) -> bool:
    """Whether a toleration covers a taint.

    Both are JSON objects: Toleration and Taint of core/v1, or DeviceToleration and DeviceTaint of
    resource.k8s.io/v1. Go: ToleratesTaint in core/v1/toleration.go and in
    dynamic-resource-allocation/resourceclaim/devicetoleration.go.
    """
    # An empty key or effect of the toleration covers every key or effect.
    for field in ("effect", "key"):
        if toleration.get(field) and toleration[field] != (taint.get(field) or ""):
            return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Equal":
        return (toleration.get("value") or "") == (taint.get("value") or "")
    # Lt and Gt of core/v1 are behind a feature gate that is off (TaintTolerationComparisonOperators).
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
    """For how many seconds a NoExecute taint of a device is tolerated: 0 without a toleration, None for ever.

    Only tolerations that name the effect NoExecute count. Of several with seconds the shortest counts;
    negative seconds are 0. Go: claimEvictionTime in devicetainteviction/device_taint_eviction.go.
    """
    seconds: list[int] = []
    for one in tolerations:
        if one.get("effect") == "NoExecute" and tolerates(one, taint):
            if one.get("tolerationSeconds") is None:
                return None
            seconds.append(max(0, int(one["tolerationSeconds"])))
    return min(seconds, default=0)
