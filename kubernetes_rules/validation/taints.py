"""Checks device taints, their tolerations, DeviceTaintRules, and the taints of nodes."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.validation import names
from kubernetes_rules.validation.declared import declared_errors
from kubernetes_rules.validation.field import (
    FieldError,
    all_invalid,
    duplicate,
    invalid,
    not_supported,
    required,
)

Object = dict[str, Any]

_NODE_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


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


def node_taint_errors(taints: list[Object], path: str) -> list[FieldError]:
    """The errors of the taints of a node (Go: validateNodeTaints in pkg/apis/core/validation)."""
    errors: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        here = f"{path}[{index}]"
        key, value, effect = (taint.get(name) or "" for name in ("key", "value", "effect"))
        errors += all_invalid(f"{here}.key", key, names.label_key(key))
        wrong = names.label_value(value)
        errors += [invalid(f"{here}.value", value, ";".join(wrong))] if wrong else []
        if not effect:
            errors.append(required(f"{here}.effect"))
        elif effect not in _NODE_EFFECTS:
            errors.append(not_supported(f"{here}.effect", effect, _NODE_EFFECTS))
        if (key, effect) in seen:
            # Kubernetes shows the names that the fields have in Go.
            shown = {"Key": key, "Value": value, "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            errors.append(duplicate(here, shown, "taints must be unique by key and effect pair"))
        seen.add((key, effect))
    return errors
