"""Rights that depend on the object that is written: roles, bindings, and the status of claims.

Nobody may grant what they may not do themselves, unless they may ``escalate`` or ``bind`` (Go:
kubernetes/pkg/registry/rbac). The status of a claim needs rights on ``resourceclaims/binding`` and
``resourceclaims/driver``, resources that exist for this check only (pkg/registry/resource, utils.go).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from envtest.embedded.access.gate import Gate
from envtest.embedded.api.admission import Attributes
from envtest.embedded.api.requests import User
from envtest.embedded.api.statuses import Refused, details_of, invalid
from kubernetes_rules.rbac import (
    FULL_AUTHORITY,
    MASTERS,
    SERVICE_ACCOUNTS,
    Access,
    escalation_text,
    forbidden_text,
    missing,
)
from kubernetes_rules.validation.field import FieldError, forbidden

Object = dict[str, Any]

_RBAC = "rbac.authorization.k8s.io"
_NODE_NAME = "authentication.kubernetes.io/node-name"
_ROLES = ("roles", "clusterroles")
_BINDINGS = ("rolebindings", "clusterrolebindings")


class ObjectRights:
    """A mutator that changes nothing (see api.admission): it judges before the object is validated."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __call__(self, attributes: Attributes) -> Object | None:
        """The item itself; raises Refused (403, 422)."""
        item, user = attributes.item, attributes.request.user
        if item is None or not self._gate.has_rbac or MASTERS in user.groups:
            return item
        resource = attributes.resource
        if resource.group == _RBAC and resource.plural in _ROLES:
            self._check_role(attributes, item, user)
        elif resource.group == _RBAC and resource.plural in _BINDINGS:
            self._check_binding(attributes, item, user)
        elif (resource.plural, attributes.request.subresource) == ("resourceclaims", "status"):
            self._check_claim_status(attributes, item, attributes.old or {}, user)
        return item

    def _check_role(self, attributes: Attributes, role: Object, user: User) -> None:
        request = attributes.request
        may_escalate = Access(
            "escalate", _RBAC, attributes.resource.plural, namespace=request.namespace, name=request.name
        )
        if self._gate.decide(user, may_escalate)[0]:
            return
        self._check_grant(attributes, role.get("rules") or (), user)
        if any((one or {}).get("aggregationRule") for one in (role, attributes.old)) and self._lacking(
            user, request.namespace, FULL_AUTHORITY
        ):
            text = "must have cluster-admin privileges to use the aggregationRule"
            raise _refused(attributes, text)

    def _check_binding(self, attributes: Attributes, binding: Object, user: User) -> None:
        reference, namespace = binding.get("roleRef") or {}, attributes.request.namespace
        kind, name = reference.get("kind", ""), reference.get("name", "")
        plural = {"ClusterRole": "clusterroles", "Role": "roles"}.get(kind)
        if plural is None:
            return  # the validation, which follows, refuses it
        if self._gate.decide(user, Access("bind", _RBAC, plural, namespace=namespace, name=name))[0]:
            return
        rules = self._gate.rules_of(kind, namespace if kind == "Role" else "", name)
        if rules is None:
            details = details_of(_RBAC, attributes.resource.plural, name)
            text = f'{attributes.resource.qualified_name} "{name}" not found'
            raise Refused(404, text, details=details)
        self._check_grant(attributes, rules, user)

    def _check_grant(self, attributes: Attributes, rules: Any, user: User) -> None:
        lacking = self._lacking(user, attributes.request.namespace, rules)
        if lacking:
            raise _refused(attributes, escalation_text(user.name, user.groups, lacking))

    def _lacking(self, user: User, namespace: str, rules: Any) -> list[Any]:
        return missing((grant.rule for grant in self._gate.grants(user, namespace)), rules)

    def _check_claim_status(self, attributes: Attributes, item: Object, old: Object, user: User) -> None:
        request = attributes.request
        new_status, old_status = item.get("status") or {}, old.get("status") or {}
        base = Access(request.verb or "", request.group, request.resource, namespace=request.namespace)
        errors: list[FieldError] = []
        if any(new_status.get(key) != old_status.get(key) for key in ("allocation", "reservedFor")):
            binding = replace(base, subresource="binding", namespace="")
            text = (
                "changing status.allocation or status.reservedFor requires "
                f'resource="resourceclaims/binding", verb="{request.verb}" permission: '
            )
            errors += self._denied("status.allocation", text, user, (binding,))
        if new_status.get("allocation"):
            verbs = [f"arbitrary-node:{request.verb}"]
            if _node_of(user) and _node_of(user) == _allocated_node(new_status["allocation"]):
                verbs.insert(0, f"associated-node:{request.verb}")
            text = (
                'changing status.devices requires resource="resourceclaims/driver", '
                f'verb="[{" ".join(verbs)}]" permission: '
            )
            for driver in sorted(_changed_drivers(new_status, old_status)):
                asked = tuple(replace(base, verb=verb, subresource="driver", name=driver) for verb in verbs)
                errors += self._denied("status.devices", text, user, asked)
        if errors:
            raise invalid(request.group, "ResourceClaim", request.name, errors)

    def _denied(self, field: str, text: str, user: User, asked: tuple[Access, ...]) -> list[FieldError]:
        """The error of a user who may do none of what is asked."""
        if any(self._gate.decide(user, one)[0] for one in asked):
            return []
        first = asked[0]
        head = f"{first.resource}.{first.group}" + (f' "{first.name}"' if first.name else "")
        return [forbidden(field, f"{text}{head} is forbidden: {forbidden_text(user.name, first)}")]


def _refused(attributes: Attributes, text: str) -> Refused:
    resource = attributes.resource
    details = details_of(resource.group, resource.plural, attributes.name)
    message = f'{resource.qualified_name} "{attributes.name}" is forbidden: {text}'
    return Refused(403, message, details=details)


def _node_of(user: User) -> str:
    """The one node that a service account's token names; empty for all other users."""
    nodes = dict(user.extra).get(_NODE_NAME, ())
    return nodes[0] if len(nodes) == 1 and user.name.startswith(SERVICE_ACCOUNTS) else ""


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
