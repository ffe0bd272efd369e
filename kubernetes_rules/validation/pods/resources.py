"""Checks the resources of containers and pods: names, amounts, and that requests fit their limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubernetes_rules.pod_resources import COMPUTE, HUGE, amounts_of, container_total
from kubernetes_rules.quantity import Quantity
from kubernetes_rules.validation import field
from kubernetes_rules.validation.field import FieldError
from kubernetes_rules.validation.names import is_extended_resource_name, label_key
from kubernetes_rules.validation.pods.claims import container_claim_errors

Object = dict[str, Any]
NameRule = Callable[[str, str], list[FieldError]]

_OF_CONTAINERS = frozenset({*COMPUTE, "ephemeral-storage"})
WHOLE = frozenset(
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
"""The resources that are counted in whole numbers."""

STANDARD = (
    _OF_CONTAINERS
    | WHOLE
    | {f"{kind}.{name}" for kind in ("requests", "limits") for name in _OF_CONTAINERS}
    | {"storage", "requests.storage"}
)
"""The names without a domain that a resource may have."""


def container_resource_errors(resources: Object, claims: set[str], path: str) -> list[FieldError]:
    """The errors of a container's resources; ``claims`` are the names of the pod's claims."""
    return _requirement_errors(resources, container_resource_name_errors, claims, path)


def pod_resource_errors(resources: Object, claims: set[str], path: str) -> list[FieldError]:
    """The errors of pod-level resources: only compute resources, and no claims."""
    errors: list[FieldError] = []
    if resources.get("claims") is not None:
        text = "claims may not be set for Resources at pod-level"
        errors.append(field.forbidden(f"{path}.claims", text))
    return errors + _requirement_errors(resources, _pod_name_errors, claims, path)


def _requirement_errors(
    resources: Object, name_rule: NameRule, claims: set[str], path: str
) -> list[FieldError]:
    limits, requests = amounts_of(resources, "limits"), amounts_of(resources, "requests")
    errors: list[FieldError] = []
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            here = f"{path}.{kind}[{name}]"
            errors += name_rule(name, here) + _amount_errors(name, amount, here)
    for name, amount in requests.items():
        errors += _limit_errors(name, amount, limits.get(name), path)
    asked = {*limits, *requests}
    if any(name.startswith(HUGE) for name in asked) and not asked.intersection(COMPUTE):
        errors.append(field.forbidden(path, "HugePages require cpu or memory"))
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
    if (name in WHOLE or is_extended_resource_name(name)) and amount.scaled(3) % 1000:
        errors.append(field.invalid(path, str(amount), "must be an integer"))
    return errors


def _amount_errors(name: str, amount: Quantity, path: str) -> list[FieldError]:
    errors = quantity_errors(name, amount, path)
    if name.startswith(HUGE) and not _is_whole_pages(name, amount):
        errors.append(
            field.invalid(path, str(amount), f"{amount} is not positive integer multiple of {name}")
        )
    return errors


def _is_whole_pages(name: str, amount: Quantity) -> bool:
    try:
        page = Quantity.parse(name.removeprefix(HUGE))
    except ValueError:
        return False
    return page.value > 0 and page.scaled(3) % 1000 == 0 and amount.scaled(0) % page.scaled(0) == 0


def container_resource_name_errors(name: str, path: str) -> list[FieldError]:
    """The errors of the name of a resource that a container asks for."""
    errors = resource_name_errors(name, path)
    if "/" not in name:
        if name not in _OF_CONTAINERS and not name.startswith(HUGE):
            errors.append(field.invalid(path, name, "must be a standard resource for containers"))
    elif not _is_native(name) and not is_extended_resource_name(name):
        errors.append(field.invalid(path, name, "doesn't follow extended resource name standard"))
    return errors


def _pod_name_errors(name: str, path: str) -> list[FieldError]:
    errors = resource_name_errors(name, path)
    if not errors and name not in COMPUTE and not name.startswith(HUGE):
        errors.append(field.not_supported(path, name, ("cpu", HUGE, "memory")))
    return errors


def resource_name_errors(name: str, path: str) -> list[FieldError]:
    """The errors of the name of any resource."""
    errors = field.all_invalid(path, name, label_key(name))
    if not errors and "/" not in name and name not in STANDARD and not is_huge_quota(name):
        errors.append(field.invalid(path, name, "must be a standard resource type or fully qualified"))
    return errors


def is_huge_quota(name: str) -> bool:
    """Whether a name is that of huge pages, or of requests for them."""
    return name.removeprefix("requests.").startswith(HUGE)


def _is_native(name: str) -> bool:
    """Whether the resource is one of Kubernetes itself; a name without a domain counts as such."""
    return "/" not in name or "kubernetes.io/" in name


def sum_errors(spec: Object, path: str) -> list[FieldError]:
    """The errors of pod-level resources (``path``) against those of the containers.

    The sum of the requests has to fit, and the sum of the limits of huge pages. Of other resources each
    container's limit has to fit by itself.
    """
    limits, requests = (amounts_of(spec["resources"], kind) for kind in ("limits", "requests"))
    errors: list[FieldError] = []
    for kind, whole, names in (
        ("requests", requests, requests),
        ("limits", limits, [name for name in limits if name.startswith(HUGE)]),
    ):
        total = container_total(spec, kind)
        for name in names:
            if name in total and total[name].value > whole[name].value:
                text = f"must be greater than or equal to aggregate container {kind} of {total[name]}"
                errors.append(field.invalid(f"{path}.{kind}[{name}]", str(whole[name]), text))
    for index, container in enumerate(spec.get("containers") or []):
        for name, limit in amounts_of(container.get("resources") or {}, "limits").items():
            if name in limits and limit.value > limits[name].value:
                here = f"{path}.containers[{index}][{name}].limits"
                text = f"must be less than or equal to pod limits of {limits[name]}"
                errors.append(field.invalid(here, str(limit), text))
    return errors
