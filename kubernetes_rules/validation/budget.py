"""Validates PodDisruptionBudgets (policy/v1). Go: pkg/apis/policy/validation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kubernetes_rules.validation.errors import FieldError, invalid, not_supported

_PERCENT = re.compile(r"[0-9]+%", re.ASCII)
_NO_PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex "
    "used for validation is '[0-9]+%')"
)
_POLICIES = ("AlwaysAllow", "IfHealthyBudget")


def budget_errors(budget: Mapping[str, Any]) -> list[FieldError]:
    """What is wrong with the spec of a new or changed budget; its selector is not looked at."""
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
            errors += number_errors(f"spec.{name}", value, most_percent=100)
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in _POLICIES:
        errors.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, _POLICIES))
    return errors


def number_errors(path: str, value: int | str, most_percent: int | None = None) -> list[FieldError]:
    """What is wrong with a number of pods, or with a share of them in percent."""
    if isinstance(value, int):
        return [invalid(path, value, "must be greater than or equal to 0")] if value < 0 else []
    if not _PERCENT.fullmatch(value):
        return [invalid(path, value, _NO_PERCENT)]
    if most_percent is None or int(value[:-1]) <= most_percent:
        return []
    return [invalid(path, value, f"must not be greater than {most_percent}%")]
