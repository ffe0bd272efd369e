"""Says when taints drive the pods of a claim from their devices (device taint eviction, KEP-5055)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from kubernetes_rules.device_taint_rules import rule_selects
from kubernetes_rules.tolerations import tolerated_seconds

Json = Mapping[str, Any]
Pools = Mapping[tuple[str, str], Sequence[Json]]
"""The slices of each pool that count, by its driver and name."""


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
