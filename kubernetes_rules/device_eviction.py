"""Says when taints drive the pods of a claim from their devices (device taint eviction, KEP-5055)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from kubernetes_rules.device_taint_rules import rule_selects
from kubernetes_rules.tolerations import tolerated_seconds

Json = Mapping[str, Any]


def eviction_time(results: Iterable[Json], slices: Sequence[Json], rules: Sequence[Json]) -> datetime | None:
    """When pods that use these devices have to go, None if never: the earliest end of what taints let them.

    ``results`` are those of an allocation, with the tolerations of their requests. NoExecute taints of
    ``slices``, as published, and of ``rules`` (DeviceTaintRules) count, from their ``timeAdded`` on.
    Go: claimEvictionTime in devicetainteviction/device_taint_eviction.go.
    """
    moments = []
    for result in results:
        for taint in _executing(result, slices, rules):
            seconds = tolerated_seconds(taint, result.get("tolerations") or ())
            if seconds is not None:
                added = datetime.fromisoformat(taint["timeAdded"])
                moments.append(added + timedelta(seconds=seconds))
    return min(moments, default=None)


def _executing(result: Json, slices: Sequence[Json], rules: Sequence[Json]) -> Iterator[Json]:
    """The NoExecute taints on an allocated device, from its slice and from rules."""
    driver, pool, name = result["driver"], result["pool"], result["device"]
    for one in slices:
        spec = one["spec"]
        if (spec["driver"], spec["pool"]["name"]) == (driver, pool):
            for device in spec.get("devices") or ():
                if device["name"] == name:
                    yield from (taint for taint in device.get("taints") or () if _executes(taint))
    for rule in rules:
        taint = rule["spec"]["taint"]
        if _executes(taint) and rule_selects(rule, driver, pool, name):
            yield taint


def _executes(taint: Json) -> bool:
    return bool(taint.get("effect") == "NoExecute")
