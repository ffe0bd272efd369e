"""Counts what ResourceQuotas charge for claims and pods, and which pods a quota with scopes counts.

Go: resource_claims.go and pods.go in pkg/quota/v1/evaluator/core. A quota with the scope
CrossNamespacePodAffinity or VolumeAttributesClass counts nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from kubernetes_rules.allocator.requests import MOST_DEVICES
from kubernetes_rules.defaults import defaulted_claim_spec
from kubernetes_rules.pod_claims import IMPLICIT_PREFIX, is_extended
from kubernetes_rules.pod_resources import HUGE, amounts_of, container_total, quality_of_service
from kubernetes_rules.quantity import Quantity

Json = Mapping[str, Any]
Charges = dict[str, int]
Amounts = dict[str, Quantity]

CLAIM_COUNT = "count/resourceclaims.resource.k8s.io"
"""The quota key for the number of claims."""

_DEVICES = ".deviceclass.resource.k8s.io/devices"
_COUNTED = ("cpu", "memory", "ephemeral-storage")
_HAS_TO_BE_SAID = frozenset(
    {*("cpu", "memory", "requests.cpu", "requests.memory"), *("limits.cpu", "limits.memory")}
)


def requests_name(resource: str) -> str:
    """The quota key of an extended resource: ``requests.example.com/gpu``."""
    return f"requests.{resource}"


def limits_claims(quota: Json) -> bool:
    """Whether a ResourceQuota can limit claims; one with scopes never does."""
    spec = quota.get("spec") or {}
    selector = spec.get("scopeSelector") or {}
    return not spec.get("scopes") and not selector.get("matchExpressions")


def device_charges(
    spec: Json, device_class: Callable[[str], Json | None], paid: Mapping[str, int] | None = None
) -> Charges:
    """What a claim is charged for its devices: by class, and by both extended resources of each class.

    ``spec`` is a ResourceClaimSpec, ``device_class`` finds a DeviceClass by name. For a claim that was made
    for a pod's extended resources, ``paid`` is what the pod is charged already.
    """
    devices = _devices(spec)
    charges = {f"{name}{_DEVICES}": count for name, count in devices.items()}
    extended: Charges = {}
    for name, count in devices.items():
        known = device_class(name)
        if known is None:
            continue
        extended[requests_name(f"{IMPLICIT_PREFIX}{name}")] = count
        explicit = (known.get("spec") or {}).get("extendedResourceName")
        if explicit:
            extended[requests_name(explicit)] = count
    # An extended resource is not charged twice, for pod and claim; the count by class is the claim's alone.
    left = {name: count - (paid or {}).get(name, 0) for name, count in extended.items()}
    return charges | {name: count for name, count in left.items() if count > 0}


def _devices(spec: Json) -> Counter[str]:
    """The most devices of each class that a claim can get; a request of an unknown kind gets none."""
    total: Counter[str] = Counter()
    # Only one subrequest of firstAvailable is allocated: each class is charged its largest.
    for request in (defaulted_claim_spec(spec).get("devices") or {}).get("requests") or ():
        exactly = request.get("exactly")
        most: Counter[str] = Counter()
        for one in request.get("firstAvailable") or ([] if exactly is None else [exactly]):
            name = one.get("deviceClassName") or ""
            most[name] = max(most[name], _most(one))
        total.update(most)
    return total


def _most(request: Json) -> int:
    """How many devices a request with its defaults can get; 0 for an unknown allocation mode."""
    # Quota cannot know how many devices match; an allocation holds at most AllocationResultsMaxSize.
    if request["allocationMode"] == "All":
        return MOST_DEVICES
    return int(request.get("count") or 0) if request["allocationMode"] == "ExactCount" else 0


def pod_charges(pod: Json) -> Amounts:
    """What a pod is charged for that has not ended: compute resources, huge pages and extended resources."""
    spec = pod.get("spec") or {}
    totals = []
    for kind in ("requests", "limits"):
        total = container_total(spec, kind) | amounts_of(spec.get("resources") or {}, kind)
        for name, amount in amounts_of(spec, "overhead").items():
            if kind == "requests" or name in total:
                total[name] = total[name].plus(amount) if name in total else amount
        totals.append(total)
    return _resource_charges(*totals)


def _resource_charges(requests: Amounts, limits: Amounts) -> Amounts:
    """The quota keys of requests and limits; requests for compute count under two names."""
    found: Amounts = {}
    for name, amount in requests.items():
        if name in _COUNTED or name.startswith(HUGE):
            found[name] = amount
        if name in _COUNTED or name.startswith(HUGE) or is_extended(name):
            found[requests_name(name)] = amount
    return found | {f"limits.{name}": amount for name, amount in limits.items() if name in _COUNTED}


def missing_amounts(pod: Json, quota: Json) -> str:
    """What containers of a pod have to ask for in a namespace with such a quota; empty if nothing is missing.

    Each container must say how much it needs of cpu and memory that are limited.
    """
    spec = pod.get("spec") or {}
    own = spec.get("resources") or {}
    if own.get("requests") or own.get("limits"):
        return ""
    required = sorted(_HAS_TO_BE_SAID & set((quota.get("spec") or {}).get("hard") or {}))
    missing: dict[str, list[str]] = {}
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = container.get("resources") or {}
        said = _resource_charges(amounts_of(resources, "requests"), amounts_of(resources, "limits"))
        for name in required:
            if name not in said:
                missing.setdefault(name, []).append(container["name"])
    texts = [f"{name} for: {','.join(sorted(set(names)))}" for name, names in sorted(missing.items())]
    return f"must specify {'; '.join(texts)}" if texts else ""


def quota_counts(quota: Json, plural: str, item: Json) -> bool:
    """Whether an object of the resource ``plural`` counts for a ResourceQuota of its namespace."""
    spec = quota.get("spec") or {}
    selector = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    expressions = [
        *({"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()),
        *selector,
    ]
    if not expressions:
        return True
    return plural == "pods" and all(_matches_scope(one, item.get("spec") or {}) for one in expressions)


def _matches_scope(expression: Json, spec: Json) -> bool:
    match expression["scopeName"]:
        case "PriorityClass":
            return _matches(expression, spec.get("priorityClassName") or "")
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "BestEffort":
            return quality_of_service(spec) == "BestEffort"
        case "NotBestEffort":
            return quality_of_service(spec) != "BestEffort"
    return False


def _matches(expression: Json, priority_class: str) -> bool:
    """Whether one expression holds for a pod's priority class; the class is empty if the pod has none."""
    among = priority_class in (expression.get("values") or ())
    match expression["operator"]:
        case "In":
            return among
        case "NotIn":
            return not among
        case "Exists":
            return bool(priority_class)
        case "DoesNotExist":
            return not priority_class
        case other:
            raise ValueError(f"{other} is no operator of a scope selector")
