"""Checks the resources of containers: names, amounts, that requests fit their limits, and claims."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.pod_resources import HUGE, amounts_of
from kubernetes_rules.quantity import Quantity
from kubernetes_rules.validation import field
from kubernetes_rules.validation.field import FieldError
from kubernetes_rules.validation.names import is_extended_resource_name, label_key
from kubernetes_rules.validation.pods.claims import container_claim_errors

Object = dict[str, Any]

_OF_CONTAINERS = frozenset({"cpu", "memory", "ephemeral-storage"})
_COUNTED = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    }
)
_STANDARD = (
    _OF_CONTAINERS
    | _COUNTED
    | {f"{kind}.{name}" for kind in ("requests", "limits") for name in _OF_CONTAINERS}
    | {"storage", "requests.storage"}
)
"""The names without a domain that a resource may have."""


def resource_errors(resources: Object, claims: set[str], path: str) -> list[FieldError]:
    """The errors of a container's resources; ``claims`` are the names of the pod's claims."""
    limits, requests = amounts_of(resources, "limits"), amounts_of(resources, "requests")
    errors: list[FieldError] = []
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            here = f"{path}.{kind}[{name}]"
            errors += _container_name_errors(name, here) + quantity_errors(name, amount, here)
    for name, amount in requests.items():
        errors += _limit_errors(name, amount, limits.get(name), path)
    return errors + container_claim_errors(resources.get("claims") or [], claims, f"{path}.claims")


def _limit_errors(name: str, amount: Quantity, limit: Quantity | None, path: str) -> list[FieldError]:
    """The errors of a request and its limit."""
    # IsOvercommitAllowed: of extended resources and huge pages the request has to equal the limit.
    shared = _is_native(name) and not name.startswith(HUGE)
    if limit is None:
        text = "Limit must be set for non overcommitable resources"
        return [] if shared else [field.required(f"{path}.limits", text)]
    if amount.value == limit.value or (shared and amount.value < limit.value):
        return []
    relation = "less than or equal to" if shared else "equal to"
    return [field.invalid(f"{path}.requests", str(amount), f"must be {relation} {name} limit of {limit}")]


def quantity_errors(name: str, amount: Quantity, path: str) -> list[FieldError]:
    """The errors of an amount of a resource: it is not negative, and of some resources whole."""
    errors: list[FieldError] = []
    if amount.value < 0:
        errors.append(field.invalid(path, str(amount), "must be greater than or equal to 0"))
    if (name in _COUNTED or is_extended_resource_name(name)) and amount.scaled(3) % 1000:
        errors.append(field.invalid(path, str(amount), "must be an integer"))
    return errors


def _container_name_errors(name: str, path: str) -> list[FieldError]:
    """The errors of the name of a resource that a container asks for."""
    errors = resource_name_errors(name, path)
    if "/" not in name:
        if name not in _OF_CONTAINERS and not name.startswith(HUGE):
            errors.append(field.invalid(path, name, "must be a standard resource for containers"))
    elif not _is_native(name) and not is_extended_resource_name(name):
        errors.append(field.invalid(path, name, "doesn't follow extended resource name standard"))
    return errors


def resource_name_errors(name: str, path: str) -> list[FieldError]:
    """The errors of the name of any resource."""
    errors = field.all_invalid(path, name, label_key(name))
    is_standard = name in _STANDARD or name.removeprefix("requests.").startswith(HUGE)
    if not errors and "/" not in name and not is_standard:
        errors.append(field.invalid(path, name, "must be a standard resource type or fully qualified"))
    return errors


def _is_native(name: str) -> bool:
    """Whether the resource is one of Kubernetes itself; a name without a domain counts as such."""
    return "/" not in name or "kubernetes.io/" in name
