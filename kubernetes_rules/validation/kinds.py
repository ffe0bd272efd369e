"""Finds the errors of new and changed objects of built-in kinds.

Objects are as the API server has decoded them and with their defaults. DRA kinds are checked as
kube-apiserver does it. Of other kinds metadata is, and what ``CHECKED`` names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from kubernetes_rules.quantity import Quantity
from kubernetes_rules.selectors import label_selector_matches
from kubernetes_rules.validation import dra_kinds, names
from kubernetes_rules.validation.field import (
    FieldError,
    all_invalid,
    forbidden,
    invalid,
    not_supported,
    required,
    unique,
)
from kubernetes_rules.validation.metadata import (
    metadata_errors,
    metadata_update_errors,
    name_errors,
)
from kubernetes_rules.validation.pods import (
    pod_errors,
    pod_update_errors,
    quantity_errors,
    resource_name_errors,
    template_errors,
)
from kubernetes_rules.validation.taints import node_taint_errors

Object = dict[str, Any]
Check = Callable[[Object, Object | None], list[FieldError]]
"""Takes an object and the one that it replaces (None: it is new), returns the errors beside the metadata."""

CHECKED = (
    ("every kind", "metadata: names, labels, annotations, finalizers, owners"),
    ("ResourceClaim, ResourceClaimTemplate, DeviceClass, ResourceSlice, DeviceTaintRule", "everything"),
    (
        "Pod, and templates of pods",
        "claims, resources, names, images, what the scheduler reads, what an update may change",
    ),
    (
        "Deployment, ReplicaSet, Job",
        "the template, the selector, numbers, the strategy, what an update may change",
    ),
    ("PodDisruptionBudget", "numbers"),
    ("ResourceQuota", "names and amounts of resources"),
    ("PriorityClass", "the value"),
    ("Node", "taints"),
    ("ConfigMap, Secret", "keys"),
)
"""What is checked: the kinds and their parts."""

_DRA = "resource.k8s.io"
_NAMES = {
    **dict.fromkeys(("Namespace", "Service"), lambda text: names.dns_label(text, "characters")),
    **dict.fromkeys(
        ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "PodDisruptionBudget", "Event"),
        names.path_segment,
    ),
}
"""The rules of names for kinds that are not named by a subdomain."""

_IMMUTABLE = {"Deployment": ("selector",), "ReplicaSet": ("selector",), "Job": ("selector", "completionMode")}
_NUMBERS = (
    *("replicas", "minReadySeconds", "revisionHistoryLimit", "parallelism", "completions"),
    *("activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"),
)
_STRATEGIES = ("Recreate", "RollingUpdate")
_COMPLETION_MODES = ("NonIndexed", "Indexed")
_HIGHEST_PRIORITY = 1_000_000_000
_FIXED = "field is immutable"
_PERCENT = re.compile(r"[0-9]+%", re.ASCII)
_NO_PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex "
    "used for validation is '[0-9]+%')"
)


def created_errors(group: str, item: Object, *, namespaced: bool) -> list[FieldError]:
    """The errors of a new object of a built-in kind of ``group``."""
    kind = item["kind"]
    if group == _DRA:
        return dra_kinds.errors_of(item)
    if kind == "Pod":
        return unique(pod_errors(item))
    errors = metadata_errors(item["metadata"], namespaced=namespaced, name_rule=_NAMES.get(kind, name_errors))
    return unique(errors + _own(kind, item, None))


def updated_errors(group: str, new: Object, old: Object, *, namespaced: bool) -> list[FieldError]:
    """The errors of ``new`` as an update of ``old``, but not of its status."""
    kind, metadata = new["kind"], new["metadata"]
    # Go: validateCommonFields in k8s.io/apiserver/pkg/registry/rest, which holds for every kind.
    errors = metadata_errors(metadata, namespaced=namespaced, name_rule=names.path_segment)
    if group == _DRA:
        errors += dra_kinds.update_errors_of(new, old)
    elif kind == "Pod":
        errors += pod_update_errors(new, old)
    else:
        errors += metadata_update_errors(metadata, old["metadata"]) + _own(kind, new, old)
    return unique(errors)


def _own(kind: str, item: Object, old: Object | None) -> list[FieldError]:
    check = _CHECKS.get(kind)
    return [] if check is None else check(item, old)


def _workload_errors(item: Object, old: Object | None) -> list[FieldError]:
    kind, spec, before = item["kind"], item.get("spec") or {}, (old or {}).get("spec") or {}
    errors = template_errors(item)
    errors += [
        invalid(f"spec.{name}", spec[name], "must be greater than or equal to 0")
        for name in _NUMBERS
        if spec.get(name) is not None and spec[name] < 0
    ]
    fixed = [*_IMMUTABLE[kind]]
    if kind == "Job":
        errors += _job_errors(spec)
        # While a Job is suspended, its pods may still be directed to other nodes.
        fixed += [] if before.get("suspend") else ["template"]
    else:
        errors += _selector_errors(spec)
    if kind == "Deployment":
        errors += _strategy_errors(spec.get("strategy") or {})
    changed = [name for name in fixed if before and spec.get(name) != before.get(name)]
    return errors + [invalid(f"spec.{name}", spec.get(name), _FIXED) for name in changed]


def _selector_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    selector = spec.get("selector")
    if selector is None:
        return [required("spec.selector")]
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        return [invalid("spec.selector", selector, "empty selector is invalid for deployment")]
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if label_selector_matches(selector, labels):
        return []
    text = "`selector` does not match template `labels`"
    return [invalid("spec.template.metadata.labels", labels or None, text)]


def _strategy_errors(strategy: Mapping[str, Any]) -> list[FieldError]:
    path, kind, rolling = "spec.strategy", strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind not in _STRATEGIES:
        return [not_supported(path, kind, _STRATEGIES)]
    if kind == "Recreate":
        text = "may not be specified when strategy `type` is 'Recreate'"
        return [forbidden(f"{path}.rollingUpdate", text)] if rolling is not None else []
    limits = rolling or {}
    errors = _number_errors(f"{path}.rollingUpdate.maxUnavailable", limits.get("maxUnavailable", 0))
    errors += _number_errors(f"{path}.rollingUpdate.maxSurge", limits.get("maxSurge", 0))
    if all(limits.get(name, 0) in (0, "0%") for name in ("maxUnavailable", "maxSurge")):
        here = f"{path}.rollingUpdate.maxUnavailable"
        errors.append(invalid(here, limits.get("maxUnavailable", 0), "may not be 0 when `maxSurge` is 0"))
    return errors


def _job_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    mode = spec.get("completionMode")
    if mode not in _COMPLETION_MODES:
        return [not_supported("spec.completionMode", mode or "", _COMPLETION_MODES)]
    if mode == "Indexed" and spec.get("completions") is None:
        return [required("spec.completions", "when completion mode is Indexed")]
    return []


def _budget_errors(budget: Object, _old: Object | None) -> list[FieldError]:
    spec = budget.get("spec") or {}
    given = {name: spec[name] for name in ("minAvailable", "maxUnavailable") if spec.get(name) is not None}
    errors = [error for name, value in given.items() for error in _number_errors(f"spec.{name}", value)]
    if len(given) == 2:
        errors.append(invalid("spec", given, "minAvailable and maxUnavailable cannot be both set"))
    return errors


def _number_errors(path: str, value: int | str) -> list[FieldError]:
    """The errors of a number of pods or a percentage (IntOrString)."""
    if isinstance(value, int):
        return [invalid(path, value, "must be greater than or equal to 0")] if value < 0 else []
    return [] if _PERCENT.fullmatch(value) else [invalid(path, value, _NO_PERCENT)]


def _priority_class_errors(item: Object, old: Object | None) -> list[FieldError]:
    value = item.get("value") or 0
    if old is not None and value != (old.get("value") or 0):
        return [forbidden("value", "may not be changed in an update.")]
    if value > _HIGHEST_PRIORITY and not item["metadata"]["name"].startswith("system-"):
        text = f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}"
        return [forbidden("value", text)]
    return []


def _quota_errors(item: Object, _old: Object | None) -> list[FieldError]:
    return [
        error
        for name, text in ((item.get("spec") or {}).get("hard") or {}).items()
        for error in (
            *resource_name_errors(name, f"spec.hard[{name}]"),
            *quantity_errors(name, Quantity.parse(str(text)), f"spec.hard[{name}]"),
        )
    ]


def _node_errors(item: Object, _old: Object | None) -> list[FieldError]:
    # Kubernetes names another path than that of the field.
    return node_taint_errors((item.get("spec") or {}).get("taints") or [], "metadata.taints")


def _key_errors(item: Object, _old: Object | None) -> list[FieldError]:
    return [
        error
        for part in ("data", "binaryData")
        for key in item.get(part) or {}
        for error in all_invalid(f"{part}[{key}]", key, names.config_key(key))
    ]


_CHECKS: dict[str, Check] = {
    **dict.fromkeys(("Deployment", "ReplicaSet", "Job"), _workload_errors),
    **dict.fromkeys(("ConfigMap", "Secret"), _key_errors),
    "PodDisruptionBudget": _budget_errors,
    "PriorityClass": _priority_class_errors,
    "ResourceQuota": _quota_errors,
    "Node": _node_errors,
}
