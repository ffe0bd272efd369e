"""Finds the errors that kube-apiserver 1.37 finds in an object of resource.k8s.io/v1.

The rules are those of Kubernetes' pkg/apis/resource/validation, and those declared on the types.
Objects are as the API server has decoded them: types fit, fields of disabled gates are gone.
"""

from __future__ import annotations

from typing import Any

from kubernetes_rules.validation import claims, metadata
from kubernetes_rules.validation.field import FieldError, invalid, unique
from kubernetes_rules.validation.names import dns_subdomain
from kubernetes_rules.validation.slices import slice_spec_errors
from kubernetes_rules.validation.taints import taint_rule_spec_errors

Object = dict[str, Any]

_MOST_RULE_CONDITIONS = 8
_NAMESPACED = frozenset({"ResourceClaim", "ResourceClaimTemplate"})


def errors_of(item: Object) -> list[FieldError]:
    """The errors of a new object; none for a kind that has no rules here."""
    kind, given = item.get("kind") or "", item.get("metadata") or {}
    if kind not in (*_NAMESPACED, "ResourceSlice", "DeviceClass", "DeviceTaintRule"):
        return []
    # Names of classes have the newer rule, whose text counts bytes; their generateName has none.
    if kind == "DeviceClass":
        errors = metadata.metadata_errors(
            given, namespaced=False, name_rule=dns_subdomain, checks_generate_name=False
        )
    else:
        errors = metadata.metadata_errors(given, namespaced=kind in _NAMESPACED)
    return unique(errors + _spec_errors(kind, item.get("spec") or {}, None))


def update_errors_of(new: Object, old: Object) -> list[FieldError]:
    """The errors of ``new`` as an update of ``old``: forbidden changes, and what is wrong now."""
    kind, spec, before = new.get("kind") or "", new.get("spec") or {}, old.get("spec") or {}
    errors = metadata.metadata_update_errors(new.get("metadata") or {}, old["metadata"])
    # The specs of claims and templates are immutable, so that they are not checked again.
    if kind in _NAMESPACED:
        if spec != before:
            errors.append(invalid("spec", spec, "field is immutable"))
        return unique(errors)
    return unique(errors + _spec_errors(kind, spec, before))


def status_update_errors_of(new: Object, old: Object) -> list[FieldError]:
    """The errors of the status of ``new`` as an update of ``old``."""
    errors = metadata.metadata_update_errors(new.get("metadata") or {}, old["metadata"])
    match new.get("kind"):
        case "ResourceClaim":
            errors += claims.claim_status_errors(new, old)
        case "DeviceTaintRule":
            conditions = (new.get("status") or {}).get("conditions")
            errors += claims.condition_list_errors(conditions, "status.conditions", _MOST_RULE_CONDITIONS)
    return unique(errors)


def _spec_errors(kind: str, spec: Object, old: Object | None) -> list[FieldError]:
    match kind:
        case "ResourceSlice":
            return slice_spec_errors(spec, old)
        case "DeviceClass":
            return claims.class_spec_errors(spec, old)
        case "ResourceClaim":
            return claims.claim_spec_errors(spec)
        case "ResourceClaimTemplate":
            errors = metadata.template_metadata_errors(spec.get("metadata") or {}, "spec.metadata")
            return errors + claims.claim_spec_errors(spec.get("spec") or {}, "spec.spec")
        case "DeviceTaintRule":
            return taint_rule_spec_errors(spec, old)
    return []
