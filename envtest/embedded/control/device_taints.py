"""Adds the taints of DeviceTaintRules to those in slices, and says when a taint drives pods from a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from kubernetes_rules.tolerations import tolerated_seconds

Object = dict[str, Any]


def tainted_slices(slices: Sequence[Object], rules: Sequence[Object]) -> list[Object]:
    """The slices as the scheduler sees them, with the taint of each rule on the devices it selects."""
    if not rules:
        return list(slices)
    return [_tainted(one, rules) for one in slices]


def rule_selects(rule: Mapping[str, Any], driver: str, pool: str, device: str) -> bool:
    """Whether a rule is about a device; one without a selector is about none."""
    selector = rule["spec"].get("deviceSelector")
    if selector is None:
        return False
    wanted = (("driver", driver), ("pool", pool), ("device", device))
    return all(selector.get(field) in (None, value) for field, value in wanted)


def eviction_time(
    results: Iterable[Mapping[str, Any]], slices: Sequence[Object], rules: Sequence[Object]
) -> datetime | None:
    """When pods that use these devices have to go: the earliest end of what NoExecute taints let them.

    A toleration for ever stands against a taint; of several with seconds the shortest counts.
    """
    moments = []
    for result in results:
        for taint in _executing(result, slices, rules):
            seconds = tolerated_seconds(taint, result.get("tolerations") or ())
            if seconds is not None:
                moments.append(parsed_time(taint["timeAdded"]) + timedelta(seconds=seconds))
    return min(moments, default=None)


def parsed_time(text: str) -> datetime:
    """A time of the API."""
    return datetime.fromisoformat(text)


def _tainted(one: Object, rules: Sequence[Object]) -> Object:
    spec = one["spec"]
    devices = []
    for device in spec.get("devices") or ():
        added = [
            rule["spec"]["taint"]
            for rule in rules
            if rule_selects(rule, spec["driver"], spec["pool"]["name"], device["name"])
        ]
        devices.append({**device, "taints": [*device.get("taints", ()), *added]} if added else device)
    return {**one, "spec": {**spec, "devices": devices}} if devices else one


def _executing(
    result: Mapping[str, Any], slices: Sequence[Object], rules: Sequence[Object]
) -> Iterable[Mapping[str, Any]]:
    """The NoExecute taints on an allocated device, from its slice and from rules."""
    driver, pool, name = result["driver"], result["pool"], result["device"]
    for one in slices:
        spec = one["spec"]
        if (spec["driver"], spec["pool"]["name"]) == (driver, pool):
            for device in spec.get("devices") or ():
                if device["name"] == name:
                    yield from (t for t in device.get("taints", ()) if t["effect"] == "NoExecute")
    for rule in rules:
        taint = rule["spec"]["taint"]
        if taint["effect"] == "NoExecute" and rule_selects(rule, driver, pool, name):
            yield taint
