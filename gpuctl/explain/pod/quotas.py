"""Says which ResourceQuota keeps a claim from being made, as quota admission counts its devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kubernetes_rules.quantity import parse_quantity
from kubernetes_rules.quota import CLAIM_COUNT, device_charges, limits_claims

Object = Mapping[str, Any]


def exceeded(
    spec: Object,
    quotas: Sequence[Object],
    device_class: Callable[[str], Object | None],
    paid: Mapping[str, int] | None = None,
) -> str | None:
    """What is exceeded if a claim with this spec is made, None if nothing is.

    ``quotas`` are those of its namespace, with their status; ``device_class`` finds a DeviceClass by name.
    ``paid`` is what the pod is charged already for which a claim of extended resources is made.
    """
    asked = device_charges(spec, device_class, paid) | {CLAIM_COUNT: 1}
    for quota in filter(limits_claims, quotas):
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
