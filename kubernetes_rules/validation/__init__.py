"""Says what kube-apiserver 1.37 finds wrong with an object of resource.k8s.io/v1.

The rules are those of Kubernetes' pkg/apis/resource/validation together with those that the types declare.
Those of pods are in ``kubernetes_rules.validation.pods``, which need not be loaded for these.
Objects are taken as the server has decoded them: types fit, fields of disabled gates are gone.
"""

from __future__ import annotations

from typing import Any

from kubernetes_rules.validation.claims import (
    claim_spec_errors,
    claim_status_errors,
    condition_list_errors,
    configuration_errors,
    selector_list_errors,
)
from kubernetes_rules.validation.declared import declared_errors
from kubernetes_rules.validation.errors import FieldError, invalid, unique
from kubernetes_rules.validation.lists import list_errors
from kubernetes_rules.validation.metadata import (
    metadata_errors,
    metadata_update_errors,
    template_metadata_errors,
)
from kubernetes_rules.validation.names import dns_subdomain
from kubernetes_rules.validation.slices import slice_spec_errors
from kubernetes_rules.validation.taints import taint_rule_spec_errors

__all__ = ["FieldError", "errors_of", "status_update_errors_of", "update_errors_of"]

Object = dict[str, Any]

_MOST_CONFIG = 32
_MOST_RULE_CONDITIONS = 8
_NAMESPACED = frozenset({"ResourceClaim", "ResourceClaimTemplate"})


def errors_of(item: Object) -> list[FieldError]:
    """The errors of a new object; none for a kind that has no rules here."""
    kind, metadata = item.get("kind") or "", item.get("metadata") or {}
    if kind not in (*_NAMESPACED, "ResourceSlice", "DeviceClass", "DeviceTaintRule"):
        return []
    if kind == "DeviceClass":
        errors = metadata_errors(
            metadata, namespaced=False, name_rule=dns_subdomain, checks_generate_name=False
        )
    else:
        errors = metadata_errors(metadata, namespaced=kind in _NAMESPACED)
    return unique(errors + _spec_errors(kind, item.get("spec") or {}, None))


def update_errors_of(new: Object, old: Object) -> list[FieldError]:
    """The errors of ``new`` in the place of ``old``: what may not change, and what has become wrong."""
    kind, spec, before = new.get("kind") or "", new.get("spec") or {}, old.get("spec") or {}
    errors = metadata_update_errors(new.get("metadata") or {}, old["metadata"])
    if kind in _NAMESPACED:
        if spec != before:
            errors.append(invalid("spec", spec, "field is immutable"))
        return unique(errors)
    return unique(errors + _spec_errors(kind, spec, before))


def status_update_errors_of(new: Object, old: Object) -> list[FieldError]:
    """The errors of the status of ``new`` in the place of that of ``old``."""
    errors = metadata_update_errors(new.get("metadata") or {}, old["metadata"])
    match new.get("kind"):
        case "ResourceClaim":
            errors += claim_status_errors(new, old)
        case "DeviceTaintRule":
            conditions = (new.get("status") or {}).get("conditions")
            errors += condition_list_errors(conditions, "status.conditions", _MOST_RULE_CONDITIONS)
    return unique(errors)


def _spec_errors(kind: str, spec: Object, old: Object | None) -> list[FieldError]:
    match kind:
        case "ResourceSlice":
            return slice_spec_errors(spec, old)
        case "DeviceClass":
            return _class_spec_errors(spec, old)
        case "ResourceClaim":
            return claim_spec_errors(spec)
        case "ResourceClaimTemplate":
            errors = template_metadata_errors(spec.get("metadata") or {}, "spec.metadata")
            return errors + claim_spec_errors(spec.get("spec") or {}, "spec.spec")
        case "DeviceTaintRule":
            return taint_rule_spec_errors(spec, old)
    return []


def _class_spec_errors(spec: Object, old: Object | None, path: str = "spec") -> list[FieldError]:
    """The errors of a class; selectors that have not changed are not compiled again."""
    errors: list[FieldError] = []
    if old is None or old.get("selectors") != spec.get("selectors"):
        errors += selector_list_errors(spec.get("selectors"), f"{path}.selectors")
    if len(spec.get("config") or []) <= _MOST_CONFIG:
        errors += list_errors(spec.get("config"), f"{path}.config", None, configuration_errors)
    return errors + declared_errors("DeviceClassSpec", spec, path, old)
