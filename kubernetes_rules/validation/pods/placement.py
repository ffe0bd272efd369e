"""Checks what decides where a pod runs and when: node selectors, node affinity, tolerations, gates."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.validation.errors import FieldError, all_invalid, duplicate, invalid, not_supported
from kubernetes_rules.validation.names import label_key, label_value
from kubernetes_rules.validation.node_selector import node_selector_errors, node_selector_term_errors

Object = dict[str, Any]

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_WEIGHTS = range(1, 101)


def selector_errors(labels: Object, path: str) -> list[FieldError]:
    """The errors of ``nodeSelector``."""
    errors: list[FieldError] = []
    for key, value in labels.items():
        errors += all_invalid(path, key, label_key(key))
        errors += all_invalid(path, value or "", label_value(value or ""))
    return errors


def node_affinity_errors(affinity: Object, path: str) -> list[FieldError]:
    """The errors of ``affinity.nodeAffinity``."""
    errors: list[FieldError] = []
    needed = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if needed is not None:
        errors += node_selector_errors(needed, f"{path}.requiredDuringSchedulingIgnoredDuringExecution")
    liked = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or []
    for index, term in enumerate(liked):
        here = f"{path}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        weight = term.get("weight") or 0
        if weight not in _WEIGHTS:
            errors.append(invalid(f"{here}.weight", weight, "must be in the range 1-100"))
        preference = term.get("preference") or {}
        errors += node_selector_term_errors(preference, f"{here}.preference", check_values=False)
    return errors


def pod_toleration_errors(tolerations: list[Object], path: str) -> list[FieldError]:
    """The errors of ``tolerations``. Lt and Gt are behind a gate that is off."""
    errors: list[FieldError] = []
    for index, toleration in enumerate(tolerations):
        here = f"{path}[{index}]"
        key, value, operator, effect = (
            toleration.get(name) or "" for name in ("key", "value", "operator", "effect")
        )
        if key:
            errors += all_invalid(f"{here}.key", key, label_key(key))
        elif operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            errors.append(invalid(f"{here}.operator", operator, text))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errors.append(invalid(f"{here}.effect", effect, text))
        errors += _operator_errors(operator, value, f"{here}.operator")
        if effect and effect not in _EFFECTS:
            errors.append(not_supported(f"{here}.effect", effect, _EFFECTS))
    return errors


def gate_errors(gates: list[Object], path: str) -> list[FieldError]:
    """The errors of ``schedulingGates``."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        here, name = f"{path}[{index}]", gate.get("name") or ""
        errors += all_invalid(here, name, label_key(name))
        if name in seen:
            errors.append(duplicate(here, name))
        seen.add(name)
    return errors


def _operator_errors(operator: str, value: str, path: str) -> list[FieldError]:
    if operator in ("", "Equal"):
        wrong = label_value(value)
        return [invalid(path, value, ";".join(wrong))] if wrong else []
    if operator == "Exists":
        text = "value must be empty when `operator` is 'Exists'"
        return [invalid(path, value, text)] if value else []
    known = ("Equal", "Exists", "Lt", "Gt") if operator in ("Lt", "Gt") else ("Equal", "Exists")
    return [not_supported(path, operator, known)]
