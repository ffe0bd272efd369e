"""Whether a ResourceQuota keeps a claim from being made, as quota admission counts devices of a class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kubernetes_rules.allocator.requests import MOST_DEVICES
from kubernetes_rules.quantity import parse_quantity

Object = Mapping[str, Any]

_CLAIMS = "count/resourceclaims.resource.k8s.io"
_DEVICES = ".deviceclass.resource.k8s.io/devices"


def exceeded(spec: Object, quotas: Sequence[Object]) -> str | None:
    """What is exceeded if a claim with this spec is made, None if nothing is.

    ``quotas`` are those of its namespace, with their status.
    """
    asked = {f"{name}{_DEVICES}": count for name, count in _devices(spec).items()} | {_CLAIMS: 1}
    for quota in quotas:
        status = quota.get("status") or {}
        for resource, limit in sorted((status.get("hard") or {}).items()):
            used = parse_quantity(str((status.get("used") or {}).get(resource, "0")))
            if resource in asked and used + asked[resource] > parse_quantity(str(limit)):
                name = quota["metadata"]["name"]
                return (
                    f"exceeded quota: {name}, asked for {asked[resource]} of {resource}, "
                    f"used {used.normalize():f}, limited to {limit}"
                )
    return None


def _devices(spec: Object) -> Counter[str]:
    """The most devices of each class that a claim can get; all devices count as many as a claim may have."""
    total: Counter[str] = Counter()
    for request in (spec.get("devices") or {}).get("requests") or ():
        most: Counter[str] = Counter()
        for one in [request["exactly"]] if request.get("exactly") else request.get("firstAvailable") or ():
            count = MOST_DEVICES if one.get("allocationMode") == "All" else one.get("count") or 1
            most[one["deviceClassName"]] = max(most[one["deviceClassName"]], count)
        total.update(most)
    return total
