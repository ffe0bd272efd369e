"""Checks workloads (selector, numbers, immutable fields) and PodDisruptionBudgets.

``kubernetes_rules.validation.pods`` checks their templates. The failure, success and scheduling policies of
Jobs are not checked, nor are the claims for volumes of StatefulSets. Go: pkg/apis/apps/validation,
pkg/apis/batch/validation and pkg/apis/policy/validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from kubernetes_rules.selectors import label_selector_matches
from kubernetes_rules.validation.field import (
    FieldError,
    all_invalid,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kubernetes_rules.validation.names import dns_label

Json = Mapping[str, Any]

_NOT_NEGATIVE = {
    "Deployment": ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"),
    "ReplicaSet": ("replicas", "minReadySeconds"),
    "DaemonSet": ("minReadySeconds", "revisionHistoryLimit"),
    "StatefulSet": ("replicas", "minReadySeconds"),
    "Job": (
        *("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit"),
        *("ttlSecondsAfterFinished", "backoffLimitPerIndex", "maxFailedIndexes"),
    ),
}
_IMMUTABLE_IN_JOB = ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy")
_IMMUTABLE_IN_STATEFUL_SET = ("selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy")
_COMPLETION_MODES = ("NonIndexed", "Indexed")
_STRATEGIES = ("Recreate", "RollingUpdate")
_UPDATES = ("RollingUpdate", "OnDelete")
_NONE = (0, "0%")

_PERCENT = re.compile(r"[0-9]+%", re.ASCII)
_NO_PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex "
    "used for validation is '[0-9]+%')"
)
_POLICIES = ("AlwaysAllow", "IfHealthyBudget")


def controller_errors(workload: Json, old: Json | None) -> list[FieldError]:
    """The errors of a workload with its defaults, new or an update of ``old``, but not of its template."""
    kind, spec, before = workload["kind"], workload.get("spec") or {}, (old or {}).get("spec") or {}
    numbers = [
        invalid(f"spec.{name}", spec[name], "must be greater than or equal to 0")
        for name in _NOT_NEGATIVE.get(kind, ())
        if spec.get(name) is not None and spec[name] < 0
    ]
    changed = _changed_errors(spec, before, ("selector",))
    match kind:
        case "Job":
            return numbers + _job_errors(spec, before)
        case "DaemonSet":
            strategy = _daemon_strategy_errors(spec.get("updateStrategy") or {})
            return changed + _selector_errors(spec, "daemonset") + numbers + strategy
        case "StatefulSet":
            changed = _changed_errors(spec, before, _IMMUTABLE_IN_STATEFUL_SET)
            start = _start_errors(spec) + _selector_errors(spec, "statefulset")
            return _order_errors(spec) + numbers + start + changed
        case "Deployment":
            strategy = _strategy_errors(spec.get("strategy") or {}) + _deadline_errors(spec)
            return numbers + _selector_errors(spec, "deployment") + strategy + changed
    return numbers + _selector_errors(spec, "deployment") + changed


def _changed_errors(spec: Json, old: Json, fixed: Iterable[str]) -> list[FieldError]:
    changed = [name for name in fixed if old and spec.get(name) != old.get(name)]
    return [invalid(f"spec.{name}", spec.get(name), "field is immutable") for name in changed]


def _selector_errors(spec: Json, kind: str) -> list[FieldError]:
    """The errors of the selector; ``kind`` is the word for it in messages, also for a ReplicaSet."""
    selector = spec.get("selector")
    if selector is None and kind == "deployment":
        return [required("spec.selector")]
    errors = [required("spec.selector")] if selector is None and kind == "statefulset" else []
    if selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions"):
        return [invalid("spec.selector", selector, f"empty selector is invalid for {kind}")]
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    # No selector matches nothing.
    if selector is not None and label_selector_matches(selector, labels):
        return errors
    text = "`selector` does not match template `labels`"
    return [*errors, invalid("spec.template.metadata.labels", labels or None, text)]


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


def _daemon_strategy_errors(strategy: Json) -> list[FieldError]:
    path, kind, rolling = "spec.updateStrategy", strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind not in _UPDATES:
        return [not_supported(path, _shown_strategy(strategy), _UPDATES)]
    if kind == "OnDelete":
        return []
    errors: list[FieldError] = []
    for name in ("maxUnavailable", "maxSurge"):
        errors += _number_errors(
            f"{path}.rollingUpdate.{name}", (rolling or {}).get(name, 0), most_percent=100
        )
    missing, more = ((rolling or {}).get(name, 0) not in _NONE for name in ("maxUnavailable", "maxSurge"))
    if missing and more:
        text = "may not be set when maxUnavailable is non-zero"
        errors.append(invalid(f"{path}.rollingUpdate.maxSurge", (rolling or {})["maxSurge"], text))
    if not missing and not more:
        errors.append(required(f"{path}.rollingUpdate.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return errors


def _order_errors(spec: Json) -> list[FieldError]:
    """The errors of how a StatefulSet starts and updates its pods."""
    errors: list[FieldError] = []
    policy, strategy = spec.get("podManagementPolicy"), spec.get("updateStrategy") or {}
    if policy not in ("OrderedReady", "Parallel"):
        errors.append(invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    path, kind, rolling = "spec.updateStrategy", strategy.get("type"), strategy.get("rollingUpdate")
    if kind not in _UPDATES:
        text = "must be 'RollingUpdate' or 'OnDelete'"
        errors.append(invalid(path, _shown_strategy(strategy), text))
    elif kind == "OnDelete" and rolling is not None:
        shown = {"Partition": rolling.get("partition", 0), "MaxUnavailable": rolling.get("maxUnavailable")}
        text = "only allowed for updateStrategy 'RollingUpdate'"
        errors.append(invalid(f"{path}.rollingUpdate", shown, text))
    elif rolling is not None:
        most, partition = rolling.get("maxUnavailable", 1), rolling.get("partition", 0)
        errors += _number_errors(f"{path}.rollingUpdate.partition", partition)
        errors += _number_errors(f"{path}.rollingUpdate.maxUnavailable", most, most_percent=100)
        if most in _NONE:
            errors.append(invalid(f"{path}.rollingUpdate.maxUnavailable", most, "cannot be 0"))
    return errors


def _start_errors(spec: Json) -> list[FieldError]:
    """The errors of the first number and of the Service of a StatefulSet."""
    start, service = (spec.get("ordinals") or {}).get("start") or 0, spec.get("serviceName") or ""
    wrong = dns_label(service, "characters") if service else []
    return _number_errors("spec.ordinals.start", start) + all_invalid("spec.serviceName", service, wrong)


def _shown_strategy(strategy: Json) -> dict[str, Any]:
    """A strategy as messages print it: with the names of Go's fields."""
    return {"Type": strategy.get("type", ""), "RollingUpdate": strategy.get("rollingUpdate")}


def revision_errors(revision: Json, old: Json | None) -> list[FieldError]:
    """The errors of a ControllerRevision, new or an update of ``old``."""
    errors = []
    if int(revision.get("revision") or 0) < 0:
        text = "must be greater than or equal to 0"
        errors.append(invalid("revision", revision["revision"], text))
    if old is not None and revision.get("data") != old.get("data"):
        errors.append(invalid("data", revision.get("data"), "field is immutable"))
    elif not isinstance(revision.get("data"), dict):
        missing = revision.get("data") is None
        errors.append(
            required("data", "data is mandatory" if missing else "data must be a valid JSON object")
        )
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
    return errors + _changed_errors(spec, old, fixed)


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
