"""Checks workloads (selector, numbers, immutable fields) and PodDisruptionBudgets.

``kubernetes_rules.validation.pods`` checks their templates. The failure, success and scheduling policies of
Jobs are not checked. Go: pkg/apis/apps/validation, pkg/apis/batch/validation and pkg/apis/policy/validation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kubernetes_rules.selectors import label_selector_matches
from kubernetes_rules.validation.field import FieldError, forbidden, invalid, not_supported, required

Json = Mapping[str, Any]

_NOT_NEGATIVE = {
    "Deployment": ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"),
    "ReplicaSet": ("replicas", "minReadySeconds"),
    "Job": (
        *("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit"),
        *("ttlSecondsAfterFinished", "backoffLimitPerIndex", "maxFailedIndexes"),
    ),
}
_IMMUTABLE_IN_JOB = ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy")
_COMPLETION_MODES = ("NonIndexed", "Indexed")
_STRATEGIES = ("Recreate", "RollingUpdate")
_NONE = (0, "0%")

_PERCENT = re.compile(r"[0-9]+%", re.ASCII)
_NO_PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex "
    "used for validation is '[0-9]+%')"
)
_POLICIES = ("AlwaysAllow", "IfHealthyBudget")


def controller_errors(workload: Json, old: Json | None) -> list[FieldError]:
    """The errors of a workload with its defaults, new or an update of ``old``, but not of its template."""
    kind, spec = workload["kind"], workload.get("spec") or {}
    errors = [
        invalid(f"spec.{name}", spec[name], "must be greater than or equal to 0")
        for name in _NOT_NEGATIVE.get(kind, ())
        if spec.get(name) is not None and spec[name] < 0
    ]
    if kind in ("Deployment", "ReplicaSet"):
        errors += _selector_errors(spec)
    if kind == "Deployment":
        errors += _strategy_errors(spec.get("strategy") or {}) + _deadline_errors(spec)
    if kind == "Job":
        errors += _job_errors(spec, (old or {}).get("spec") or {})
    elif old is not None and kind != "DaemonSet" and spec.get("selector") != old["spec"].get("selector"):
        errors.append(invalid("spec.selector", spec.get("selector"), "field is immutable"))
    return errors


def _selector_errors(spec: Json) -> list[FieldError]:
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


def _strategy_errors(strategy: Json) -> list[FieldError]:
    path, kind, rolling = "spec.strategy", strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind not in _STRATEGIES:
        return [not_supported(path, kind, _STRATEGIES)]
    if kind == "Recreate":
        text = "may not be specified when strategy `type` is 'Recreate'"
        return [forbidden(f"{path}.rollingUpdate", text)] if rolling is not None else []
    held, more = ((rolling or {}).get(name, 0) for name in ("maxUnavailable", "maxSurge"))
    held_path = f"{path}.rollingUpdate.maxUnavailable"
    errors = _number_errors(held_path, held, most_percent=100)
    errors += _number_errors(f"{path}.rollingUpdate.maxSurge", more)
    if held in _NONE and more in _NONE:
        errors.append(invalid(held_path, held, "may not be 0 when `maxSurge` is 0"))
    return errors


def _deadline_errors(spec: Json) -> list[FieldError]:
    deadline, ready = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds") or 0
    if deadline is None or deadline > ready:
        return []
    return [invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")]


def _job_errors(spec: Json, old: Json) -> list[FieldError]:
    errors = []
    mode = spec.get("completionMode")
    if mode not in _COMPLETION_MODES:
        errors.append(not_supported("spec.completionMode", mode or "", _COMPLETION_MODES))
    if mode == "Indexed" and spec.get("completions") is None:
        errors.append(required("spec.completions", "when completion mode is Indexed"))
    if not old:
        return errors
    fixed = [*_IMMUTABLE_IN_JOB, *(["completions"] if mode != "Indexed" else [])]
    # While a Job is suspended, its pods may still be directed to other nodes.
    if not old.get("suspend"):
        fixed.append("template")
    changed = [name for name in fixed if spec.get(name) != old.get(name)]
    return errors + [invalid(f"spec.{name}", spec.get(name), "field is immutable") for name in changed]


def budget_errors(budget: Mapping[str, Any]) -> list[FieldError]:
    """The errors of the spec of a new or changed budget; its selector is not checked."""
    spec = budget.get("spec") or {}
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    errors = []
    if least is not None and most is not None:
        shown = {
            "MinAvailable": least,
            "Selector": spec.get("selector"),
            "MaxUnavailable": most,
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        errors.append(invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
    for name, value in (("minAvailable", least), ("maxUnavailable", most)):
        if value is not None:
            errors += _number_errors(f"spec.{name}", value, most_percent=100)
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in _POLICIES:
        errors.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, _POLICIES))
    return errors


def _number_errors(path: str, value: int | str, most_percent: int | None = None) -> list[FieldError]:
    """The errors of a number of pods or a percentage (IntOrString)."""
    if isinstance(value, int):
        return [invalid(path, value, "must be greater than or equal to 0")] if value < 0 else []
    if not _PERCENT.fullmatch(value):
        return [invalid(path, value, _NO_PERCENT)]
    if most_percent is None or int(value[:-1]) <= most_percent:
        return []
    return [invalid(path, value, f"must not be greater than {most_percent}%")]
