"""Answers what somebody may do, and checks who changes the status of a claim.

Nothing of a review is stored (Go: kubernetes/pkg/registry/authorization). The status of a claim needs rights
on ``resourceclaims/binding`` and ``resourceclaims/driver``, resources that exist for this check only (Go:
kubernetes/pkg/registry/resource, utils.go).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from envtest.embedded.access.gate import Gate
from envtest.embedded.api.requests import Request, User
from envtest.embedded.api.statuses import Refused, invalid
from kubernetes_rules.rbac import Access, forbidden_text
from kubernetes_rules.validation import field as field_errors
from kubernetes_rules.validation.field import FieldError

Object = dict[str, Any]

_GROUP = "authorization.k8s.io"
_ATTRIBUTES = ("verb", "group", "resource", "subresource", "namespace", "name")


def reviews(gate: Gate) -> Mapping[str, Callable[[Request, Object], Object]]:
    """What answers the creation of a review, by resource."""

    def own_access(request: Request, review: Object) -> Object:
        return _decided(gate, review, request.user)

    def access(_request: Request, review: Object) -> Object:
        spec = review.get("spec") or {}
        if not spec.get("user") and not spec.get("groups"):
            raise _wrong("spec.user", "at least one of user or group must be specified")
        return _decided(gate, review, User(spec.get("user", ""), tuple(spec.get("groups") or ())))

    return {
        "selfsubjectaccessreviews": own_access,
        "subjectaccessreviews": access,
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


def check_claim_rights(gate: Gate, request: Request, item: Object, old: Object) -> None:
    """Raises Refused (422) where the user may not change the status of the claim as ``item`` has it."""
    user = request.user
    new_status, old_status = item.get("status") or {}, old.get("status") or {}
    base = Access(request.verb, request.group, request.resource, namespace=request.namespace)
    errors: list[FieldError] = []
    if any(new_status.get(key) != old_status.get(key) for key in ("allocation", "reservedFor")):
        binding = replace(base, subresource="binding", namespace="")
        errors += _denied(gate, "status.allocation", user, binding)
    if new_status.get("allocation"):
        verbs = [f"arbitrary-node:{request.verb}"]
        if user.node and user.node == _allocated_node(new_status["allocation"]):
            verbs.insert(0, f"associated-node:{request.verb}")
        for driver in sorted(_changed_drivers(new_status, old_status)):
            asked = (replace(base, verb=verb, subresource="driver", name=driver) for verb in verbs)
            errors += _denied(gate, "status.devices", user, *asked)
    if errors:
        raise invalid(request.group, "ResourceClaim", request.name, errors)


def _denied(gate: Gate, field: str, user: User, *asked: Access) -> list[FieldError]:
    """The error of a user who may do none of what is asked."""
    if any(gate.decide(user, one)[0] for one in asked):
        return []
    return [field_errors.forbidden(field, f"changing it is forbidden: {forbidden_text(user.name, asked[0])}")]


def _allocated_node(allocation: Object) -> str:
    """The node that an allocation names; empty where it names several, or selects them by labels."""
    match (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms"):
        case [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}], **rest}]:
            return "" if rest.get("matchExpressions") else str(name)
    return ""


def _changed_drivers(new: Object, old: Object) -> set[str]:
    """The drivers whose entries in status.devices were added, changed or removed."""

    def entries(status: Object) -> dict[tuple[str, ...], Object]:
        return {
            tuple(one.get(key) or "" for key in ("driver", "pool", "device", "shareID")): one
            for one in status.get("devices") or ()
        }

    after, before = entries(new), entries(old)
    return {key[0] for key in after.keys() | before.keys() if after.get(key) != before.get(key)}
