"""Checks device taints, their tolerations, and DeviceTaintRules."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.validation import names
from kubernetes_rules.validation.declared import declared_errors
from kubernetes_rules.validation.field import FieldError, all_invalid, invalid

Object = dict[str, Any]


def taint_errors(taint: Object, path: str) -> list[FieldError]:
    """The errors of a taint's key and value; a declared rule checks its effect."""
    key, value = taint.get("key") or "", taint.get("value") or ""
    return all_invalid(f"{path}.key", key, names.label_key(key)) + all_invalid(
        f"{path}.value", value, names.label_value(value)
    )


def toleration_errors(toleration: Object, path: str) -> list[FieldError]:
    """The errors of a toleration's value; declared rules check its key, operator and effect."""
    value, operator = toleration.get("value") or "", toleration.get("operator") or "Equal"
    if operator == "Exists" and value:
        return [invalid(f"{path}.value", value, "must be empty for operator `Exists`")]
    return all_invalid(f"{path}.value", value, names.label_value(value)) if operator == "Equal" else []


def taint_rule_spec_errors(spec: Object, old: Object | None, path: str = "spec") -> list[FieldError]:
    """The errors of a DeviceTaintRule's spec."""
    selector = spec.get("deviceSelector") or {}
    errors: list[FieldError] = []
    if selector.get("driver") is not None:
        errors += names.driver_name_errors(selector["driver"], f"{path}.deviceSelector.driver")
    if selector.get("pool") is not None:
        errors += names.pool_name_errors(selector["pool"], f"{path}.deviceSelector.pool")
    if selector.get("device") is not None:
        device = selector["device"]
        errors += all_invalid(f"{path}.deviceSelector.device", device, names.dns_label(device))
    errors += taint_errors(spec.get("taint") or {}, f"{path}.taint")
    # A rule without a taint has the errors of an empty one.
    wanted = {**spec, "taint": spec.get("taint") or {}}
    return errors + declared_errors("DeviceTaintRuleSpec", wanted, path, old)
