"""Answers what somebody may do; nothing of it is stored (Go: kubernetes/pkg/registry/authorization)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from envtest.embedded.access.gate import Gate
from envtest.embedded.api.requests import Request, User
from envtest.embedded.api.statuses import Refused, invalid
from kubernetes_rules.rbac import MASTERS, Access
from kubernetes_rules.validation import field as field_errors

Object = dict[str, Any]

_GROUP = "authorization.k8s.io"
_ATTRIBUTES = ("verb", "group", "resource", "subresource", "namespace", "name")
_EVERYTHING: tuple[Object, ...] = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)


def reviews(gate: Gate) -> Mapping[str, Callable[[Request, Object], Object]]:
    """What answers the creation of a review, by resource."""

    def own_access(request: Request, review: Object) -> Object:
        return _decided(gate, review, request.user)

    def access(_request: Request, review: Object) -> Object:
        spec = review.get("spec") or {}
        if not spec.get("user") and not spec.get("groups"):
            raise _wrong("spec.user", "at least one of user or group must be specified")
        return _decided(gate, review, User(spec.get("user", ""), tuple(spec.get("groups") or ())))

    def own_rules(request: Request, review: Object) -> Object:
        namespace = (review.get("spec") or {}).get("namespace")
        if not namespace:
            raise Refused(400, "no namespace on request")
        user = request.user
        granted = gate.policy(namespace).grants(user.name, user.groups, namespace)
        rules = _EVERYTHING if MASTERS in user.groups else [grant.rule for grant in granted]
        status = {
            "resourceRules": [rule for rule in rules if rule.get("resources")],
            "nonResourceRules": [rule for rule in rules if rule.get("nonResourceURLs")],
            "incomplete": False,
        }
        return {**review, "spec": {}, "status": status}

    return {
        "selfsubjectaccessreviews": own_access,
        "subjectaccessreviews": access,
        "selfsubjectrulesreviews": own_rules,
    }


def _decided(gate: Gate, review: Object, user: User) -> Object:
    spec = review.get("spec") or {}
    of_resource, of_path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (of_resource is None) is (of_path is None):
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise _wrong("spec", text)
    if of_path is not None:
        asked = Access(of_path.get("verb", ""), path=of_path.get("path", ""))
    else:
        asked = Access(**{name: (of_resource or {}).get(name, "") for name in _ATTRIBUTES})
    allowed, reason = gate.decide(user, asked)
    return {**review, "status": {"allowed": allowed, **({"reason": reason} if reason else {})}}


def _wrong(field: str, text: str) -> Refused:
    # kube-apiserver takes the kind from an object that has lost it by then.
    return invalid(_GROUP, "", "", [field_errors.invalid(field, None, text)])
