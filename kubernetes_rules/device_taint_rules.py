"""Adds the taints of DeviceTaintRules to the devices of slices, as the scheduler sees them (KEP-5055)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]
Object = dict[str, Any]

_SELECTED_BY = ("driver", "pool", "device")


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
