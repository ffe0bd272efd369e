"""Says what is wrong with how a workload is to make its pods: selector, numbers, and what may not change.

The template is judged in ``kubernetes_rules.validation.pods``. Of Jobs the policies for failures, success and
scheduling are let through. Go: pkg/apis/apps/validation and pkg/apis/batch/validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubernetes_rules.label_selectors import selector_holds
from kubernetes_rules.validation.budget import number_errors
from kubernetes_rules.validation.errors import FieldError, forbidden, invalid, not_supported, required

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


def controller_errors(workload: Json, old: Json | None) -> list[FieldError]:
    """The errors of a workload with its defaults, new or in the place of ``old``, but for its template's."""
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
    if selector_holds(selector, labels):
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
    errors = number_errors(held_path, held, most_percent=100)
    errors += number_errors(f"{path}.rollingUpdate.maxSurge", more)
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
    if not old.get("suspend"):  # what is not begun yet may still be sent elsewhere
        fixed.append("template")
    changed = [name for name in fixed if spec.get(name) != old.get(name)]
    return errors + [invalid(f"spec.{name}", spec.get(name), "field is immutable") for name in changed]
