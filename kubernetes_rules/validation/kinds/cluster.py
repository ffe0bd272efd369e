"""Checks kinds that govern a cluster: namespaces, nodes, limits, quotas, priorities, leases and events.

Go: pkg/apis/core/validation, pkg/apis/scheduling/validation and pkg/apis/coordination/validation.
"""

from __future__ import annotations

from typing import Any

from kubernetes_rules.pod_resources import HUGE
from kubernetes_rules.quantity import Quantity
from kubernetes_rules.validation import names
from kubernetes_rules.validation.field import (
    FieldError,
    all_invalid,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kubernetes_rules.validation.metadata import (
    metadata_errors,
    metadata_update_errors,
    standard_finalizer_errors,
)
from kubernetes_rules.validation.pods.resources import (
    STANDARD,
    container_resource_name_errors,
    is_huge_quota,
    quantity_errors,
    resource_name_errors,
)
from kubernetes_rules.validation.taints import node_taint_errors

Object = dict[str, Any]

_FIXED = "field is immutable"
_HIGHEST_PRIORITY = 1_000_000_000
_SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_POLICIES = ("Never", "PreemptLowerPriority")
_LIMIT_TYPES = ("Container", "Pod", "PersistentVolumeClaim")
_FIRST_SCOPES = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort")
_SCOPES = (*_FIRST_SCOPES, "PriorityClass", "VolumeAttributesClass", "CrossNamespacePodAffinity")
_PLAIN_SCOPES = (*_FIRST_SCOPES, "CrossNamespacePodAffinity")
_OF_PODS = frozenset(
    {"pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"}
)
_OF_SCOPE = {
    **dict.fromkeys(_SCOPES, _OF_PODS),
    "BestEffort": frozenset({"pods"}),
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
_CONFLICTS = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})


def priority_class_errors(item: Object, old: Object | None) -> list[FieldError]:
    """The errors of a PriorityClass, whose value and preemption policy never change."""
    value, policy, name = (
        item.get("value") or 0,
        item.get("preemptionPolicy"),
        item["metadata"].get("name") or "",
    )
    if old is not None:
        errors = []
        if value != (old.get("value") or 0):
            errors.append(forbidden("value", "may not be changed in an update."))
        if policy != old.get("preemptionPolicy"):
            errors.append(invalid("preemptionPolicy", policy, _FIXED))
        return errors
    errors = []
    if name.startswith("system-"):
        wrong = _system_class_error(name, value, item.get("globalDefault"))
        text = "priority class names with 'system-' prefix are reserved for system use only. error: "
        errors += [forbidden("metadata.name", text + wrong)] if wrong else []
    elif value > _HIGHEST_PRIORITY:
        text = f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}"
        errors.append(forbidden("value", text))
    if policy == "":
        errors.append(required("preemptionPolicy"))
    elif policy is not None and policy not in _POLICIES:
        errors.append(not_supported("preemptionPolicy", policy, ("PreemptLowerPriority", "Never")))
    return errors


def _system_class_error(name: str, value: int, is_default: bool | None) -> str:
    if name not in _SYSTEM:
        return f"{name} is not a known system priority class"
    if value != _SYSTEM[name]:
        return f"value of {name} PriorityClass must be {_SYSTEM[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if is_default else ""


def namespace_errors(item: Object, old: Object | None) -> list[FieldError]:
    """The errors of the finalizers in the spec of a Namespace; an update leaves them alone."""
    errors: list[FieldError] = []
    for name in (item.get("spec") or {}).get("finalizers") or [] if old is None else ():
        errors += all_invalid("spec.finalizers", name, names.label_key(name))
        errors += standard_finalizer_errors(name, "spec.finalizers")
    return errors


def node_errors(item: Object, old: Object | None) -> list[FieldError]:
    """The errors of the taints of a Node, and of changes of what names it to its cloud."""
    spec, before = item.get("spec") or {}, (old or {}).get("spec") or {}
    # Kubernetes names another path than that of the field.
    errors = node_taint_errors(spec.get("taints") or [], "metadata.taints")
    was, now = before.get("providerID") or "", spec.get("providerID") or ""
    if was and was != now:
        text = "field cannot be modified once set" if now else "field cannot be cleared once set"
        errors.append(invalid("spec.providerID", None, text))
    if before.get("podCIDRs") and before["podCIDRs"] != spec.get("podCIDRs"):
        text = 'node updates may not change podCIDR except from "" to valid'
        errors.append(forbidden("spec.podCIDRs", text))
    return errors


def lease_errors(item: Object, _old: Object | None) -> list[FieldError]:
    """The errors of the spec of a Lease."""
    spec = item.get("spec") or {}
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    errors = []
    if duration is not None and duration <= 0:
        errors.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        text = "must be greater than or equal to 0"
        errors.append(invalid("spec.leaseTransitions", transitions, text))
    return errors


def limit_range_errors(item: Object, _old: Object | None) -> list[FieldError]:
    """The errors of the spec of a LimitRange."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, limit in enumerate((item.get("spec") or {}).get("limits") or []):
        path, kind = f"spec.limits[{index}]", limit.get("type") or ""
        wrong = all_invalid(f"{path}.type", kind, names.label_key(kind))
        if not wrong and "/" not in kind and kind not in _LIMIT_TYPES:
            text = "must be a standard limit type or fully qualified"
            wrong = [invalid(f"{path}.type", kind, text)]
        errors += wrong
        if kind in seen:
            errors.append(duplicate(f"{path}.type", kind))
        seen.add(kind)
        errors += _limit_errors(limit, kind, path)
    return errors


def _limit_errors(limit: Object, kind: str, path: str) -> list[FieldError]:
    rule = container_resource_name_errors if kind in ("Pod", "Container") else resource_name_errors
    amounts: dict[str, dict[str, Quantity]] = {}
    errors: list[FieldError] = []
    for name in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
        given = limit.get(name) or {}
        if kind == "Pod" and name.startswith("default"):
            if given:
                text = "may not be specified when `type` is 'Pod'"
                errors.append(forbidden(f"{path}.{name}", text))
            given = {}
        for resource in given:
            errors += rule(resource, f"{path}.{name}[{resource}]")
        amounts[name] = {resource: Quantity.parse(str(text)) for resource, text in given.items()}
    if kind == "PersistentVolumeClaim" and not any("storage" in amounts[name] for name in ("min", "max")):
        text = "either minimum or maximum storage value is required, but neither was provided"
        errors.append(required(f"{path}.limits", text))
    for resource in sorted({name for given in amounts.values() for name in given}):
        errors += _order_errors(resource, amounts, path)
    return errors


_ORDER = (
    ("min", "max", "min", "min value {0} is greater than max value {1}"),
    ("min", "defaultRequest", "defaultRequest", "min value {0} is greater than default request value {1}"),
    ("defaultRequest", "max", "defaultRequest", "default request value {0} is greater than max value {1}"),
    (
        *("defaultRequest", "default", "defaultRequest"),
        "default request value {0} is greater than default limit value {1}",
    ),
    ("min", "default", "default", "min value {0} is greater than default value {1}"),
    ("default", "max", "default", "default value {0} is greater than max value {1}"),
)
"""Of two amounts the first must not be greater: both, the field that the error names, and its text."""


def _order_errors(resource: str, amounts: dict[str, dict[str, Quantity]], path: str) -> list[FieldError]:
    errors = []
    for less, more, blamed, text in _ORDER:
        first, second = amounts[less].get(resource), amounts[more].get(resource)
        if first is not None and second is not None and first.value > second.value:
            # Go shows the bound for the default of limits, and the blamed value for the others.
            shown = {"min": first, "defaultRequest": amounts["defaultRequest"].get(resource)}.get(
                blamed, first if less == "min" else second
            )
            errors.append(invalid(f"{path}.{blamed}[{resource}]", str(shown), text.format(first, second)))
    ratio = amounts["maxLimitRequestRatio"].get(resource)
    where = f"{path}.maxLimitRequestRatio[{resource}]"
    if ratio is not None and ratio.value < 1:
        errors.append(invalid(where, str(ratio), f"ratio {ratio} is less than 1"))
    default, request = amounts["default"].get(resource), amounts["defaultRequest"].get(resource)
    is_shared = "/" not in resource or "kubernetes.io/" in resource
    has_both = default is not None and request is not None and default.value != request.value
    if has_both and (not is_shared or resource.startswith(HUGE)):
        text = f"default value {default} must equal to defaultRequest value {request} in {resource}"
        errors.append(invalid(f"{path}.defaultRequest[{resource}]", str(request), text))
    least, most = amounts["min"].get(resource), amounts["max"].get(resource)
    if ratio is not None and least is not None and most is not None and least.value > 0:
        bound = float(most.value) / float(least.value)
        if float(ratio.value) > bound:
            errors.append(invalid(where, str(ratio), f"ratio {ratio} is greater than max/min = {bound:f}"))
    return errors


def quota_errors(item: Object, old: Object | None) -> list[FieldError]:
    """The errors of the spec of a ResourceQuota, whose scopes never change."""
    spec = item.get("spec") or {}
    hard, scopes = spec.get("hard") or {}, spec.get("scopes") or []
    errors: list[FieldError] = []
    for name, text in hard.items():
        path = f"spec.hard[{name}]"
        errors += resource_name_errors(name, path)
        if "/" not in name and not _is_quota_name(name):
            errors.append(invalid(path, name, "must be a standard resource for quota"))
        errors += quantity_errors(name, Quantity.parse(str(text)), path)
    for scope in scopes:
        errors += _scope_errors(scope, hard, "spec.scopes", scopes, "spec.scopes")
    errors += [
        invalid("spec.scopes", scopes, "conflicting scopes") for pair in _CONFLICTS if pair <= set(scopes)
    ]
    if spec.get("scopeSelector") is not None:
        errors += _selector_errors(spec["scopeSelector"], hard, scopes)
    if old is not None and set(scopes) != set((old.get("spec") or {}).get("scopes") or []):
        errors.append(invalid("spec.scopes", scopes or None, _FIXED))
    return errors


def _is_quota_name(name: str) -> bool:
    return (name in STANDARD and name != "storage") or is_huge_quota(name)


def _scope_errors(scope: str, hard: Object, path: str, shown: Any, where: str) -> list[FieldError]:
    errors = []
    if scope not in _SCOPES:
        errors.append(invalid(where, scope if where != path else shown, "unsupported scope"))
    valid = _OF_SCOPE.get(scope)
    errors += [
        invalid(path, shown, "unsupported scope applied to resource")
        for name in sorted(hard)
        if valid is not None and _is_quota_name(name) and name not in valid
    ]
    return errors


def _selector_errors(selector: Object, hard: Object, scopes: list[str]) -> list[FieldError]:
    path = "spec.scopeSelector.matchExpressions"
    errors: list[FieldError] = []
    expressions = selector.get("matchExpressions") or []
    for one in expressions:
        scope, operator, values = (
            one.get("scopeName") or "",
            one.get("operator") or "",
            one.get("values") or [],
        )
        errors += _scope_errors(scope, hard, path, selector, f"{path}.scopeName")
        if scope in _PLAIN_SCOPES and operator != "Exists":
            listed = "ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
            listed += "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "
            text = (
                f"must be 'Exists' when scope is any of {listed}ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            errors.append(invalid(f"{path}.operator", operator, text))
        if operator in ("In", "NotIn") and not values:
            text = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            errors.append(required(f"{path}.values", text))
        elif operator in ("Exists", "DoesNotExist") and values:
            text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            errors.append(invalid(f"{path}.values", values, text))
        elif operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            errors.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    named = {one.get("scopeName") for one in expressions}
    return errors + [
        invalid("spec.scopeSelector.scopes", scopes or None, "conflicting scopes")
        for pair in _CONFLICTS
        if pair <= named
    ]


_EVENT_FIELDS = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type"),
    *("eventTime", "action", "related", "reportingComponent", "reportingInstance"),
)
"""The fields that an update through events.k8s.io must leave as they are."""


def event_errors(item: Object, old: Object | None, *, is_strict: bool) -> list[FieldError]:
    """The errors of an Event in the form of the core group; events.k8s.io ``is_strict``.

    Go: ValidateEventCreate and ValidateEventUpdate in pkg/apis/core/validation/events.go.
    """
    errors = _legacy_event_errors(item, "reportingController" if is_strict else "reportingComponent")
    if not is_strict:
        return errors
    if old is not None:
        errors += metadata_update_errors(item["metadata"], old["metadata"])
        for name in _EVENT_FIELDS:
            if (item.get(name) or None) != (old.get(name) or None):
                shown = "reportingController" if name == "reportingComponent" else name
                errors.append(invalid(shown, item.get(name), _FIXED))
        return errors + (_series_errors(item) if item.get("series") != old.get("series") else [])
    errors += metadata_errors(item["metadata"], namespaced=True) + _series_errors(item)
    if not item.get("eventTime"):
        errors.append(required("eventTime"))
    if item.get("type") not in ("Normal", "Warning"):
        errors.append(invalid("type", "", f"has invalid value: {item.get('type') or ''}"))
    for name in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if item.get(name):
            errors.append(invalid(name, "", "needs to be unset"))
    return errors


def _series_errors(item: Object) -> list[FieldError]:
    series = item.get("series")
    if series is None:
        return []
    errors = []
    if (series.get("count") or 0) < 2:
        errors.append(invalid("series.count", "", "should be at least 2"))
    if not series.get("lastObservedTime"):
        errors.append(required("series.lastObservedTime"))
    return errors


def _legacy_event_errors(item: Object, reporter: str) -> list[FieldError]:
    namespace = item["metadata"].get("namespace") or ""
    about = (item.get("involvedObject") or {}).get("namespace") or ""
    mismatch = [invalid("involvedObject.namespace", about, "does not match event.namespace")]
    if not item.get("eventTime"):
        fits = namespace == about if about else namespace in ("", "default")
        return [] if fits else mismatch
    errors = [] if about or namespace in ("default", "kube-system") else mismatch
    controller = item.get("reportingComponent") or ""
    errors += [] if controller else [required(reporter)]
    errors += all_invalid(reporter, controller, names.label_key(controller))
    for name, most in (("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024)):
        text = item.get(name) or ""
        if not text and name != "message":
            errors.append(required(name))
        if len(text.encode()) > most:
            errors.append(invalid(name, "", f"can have at most {most} characters"))
    return errors
