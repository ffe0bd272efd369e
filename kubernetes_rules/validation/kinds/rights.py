"""Checks the objects of rbac.authorization.k8s.io (Go: pkg/apis/rbac/validation)."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.validation import names
from kubernetes_rules.validation.field import (
    REQUIRED,
    FieldError,
    all_invalid,
    invalid,
    not_supported,
    required,
)
from kubernetes_rules.validation.metadata import label_selector_errors, name_errors

Object = dict[str, Any]

_GROUP = "rbac.authorization.k8s.io"
_KINDS = {"RoleBinding": ("Role", "ClusterRole"), "ClusterRoleBinding": ("ClusterRole",)}
_SUBJECTS = ("ServiceAccount", "User", "Group")


def role_errors(item: Object, _old: Object | None) -> list[FieldError]:
    """The errors of the rules of a Role or a ClusterRole."""
    errors: list[FieldError] = []
    for index, rule in enumerate(item.get("rules") or []):
        errors += _rule_errors(rule, f"rules[{index}]", namespaced=item["kind"] == "Role")
    aggregation = item.get("aggregationRule")
    if aggregation is not None:
        path, selectors = (
            "aggregationRule.clusterRoleSelectors",
            aggregation.get("clusterRoleSelectors") or [],
        )
        if not selectors:
            text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            errors.append(required(path, text))
        for index, selector in enumerate(selectors):
            wrong = label_selector_errors(selector, f"{path}[{index}]")
            if wrong:
                wrong.append(invalid(f"{path}[{index}]", None, "invalid label selector."))
            errors += wrong
    return _declared_last(errors)


def _rule_errors(rule: Object, path: str, *, namespaced: bool) -> list[FieldError]:
    errors = [] if rule.get("verbs") else [required(f"{path}.verbs")]
    urls = rule.get("nonResourceURLs")
    if urls:
        where = f"{path}.nonResourceURLs"
        if namespaced:
            errors.append(invalid(where, urls, "namespaced rules cannot apply to non-resource URLs"))
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            text = "rules cannot apply to both regular resources and non-resource URLs"
            errors.append(invalid(where, urls, text))
        return errors
    for name, one in (("apiGroups", "api group"), ("resources", "resource")):
        if not rule.get(name):
            errors.append(required(f"{path}.{name}", f"resource rules must supply at least one {one}"))
    return errors


def binding_errors(item: Object, old: Object | None) -> list[FieldError]:
    """The errors of a RoleBinding or a ClusterRoleBinding, new or an update of ``old``."""
    role, kinds = item.get("roleRef") or {}, _KINDS[item["kind"]]
    errors: list[FieldError] = []
    if role.get("apiGroup") != _GROUP:
        errors.append(not_supported("roleRef.apiGroup", role.get("apiGroup") or "", (_GROUP,)))
    if role.get("kind") not in kinds:
        errors.append(not_supported("roleRef.kind", role.get("kind") or "", kinds))
    name = role.get("name") or ""
    errors += (
        all_invalid("roleRef.name", name, names.path_segment(name)) if name else [required("roleRef.name")]
    )
    for index, subject in enumerate(item.get("subjects") or []):
        errors += _subject_errors(subject, f"subjects[{index}]", namespaced=item["kind"] == "RoleBinding")
    if old is not None and role != (old.get("roleRef") or {}):
        # Kubernetes shows the names that the fields have in Go.
        shown = {"APIGroup": role.get("apiGroup"), "Kind": role.get("kind"), "Name": name}
        errors.append(invalid("roleRef", shown, "field is immutable"))
    return _declared_last(errors)


def _declared_last(errors: list[FieldError]) -> list[FieldError]:
    """The errors with those behind that Kubernetes finds by rules declared on the types."""
    return sorted(
        errors, key=lambda error: error.type == REQUIRED and error.field.endswith((".verbs", ".name"))
    )


def _subject_errors(subject: Object, path: str, *, namespaced: bool) -> list[FieldError]:
    name, kind, group = (subject.get(key) or "" for key in ("name", "kind", "apiGroup"))
    errors = [] if name else [required(f"{path}.name")]
    if kind not in _SUBJECTS:
        return [*errors, not_supported(f"{path}.kind", kind, _SUBJECTS)]
    wanted = "" if kind == "ServiceAccount" else _GROUP
    if kind == "ServiceAccount" and name:
        errors += all_invalid(f"{path}.name", name, name_errors(name))
    if group != wanted:
        errors.append(not_supported(f"{path}.apiGroup", group, (wanted,)))
    if kind == "ServiceAccount" and not namespaced and not subject.get("namespace"):
        errors.append(required(f"{path}.namespace"))
    return errors
