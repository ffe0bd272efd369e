"""Says which requests the rules of an admission webhook or policy match.

Go: k8s.io/apiserver, pkg/admission/plugin/webhook/predicates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]

_GROUP = "admissionregistration.k8s.io"
_EXEMPT = frozenset(
    f"{prefix}{kind}"
    for prefix in ("Validating", "Mutating")
    for kind in ("WebhookConfiguration", "AdmissionPolicy", "AdmissionPolicyBinding")
)


@dataclass(frozen=True, slots=True)
class Target:
    """What a request writes to: operation, group, version, plural name, subresource and namespace.

    ``namespace`` is empty for objects of the whole cluster; for a Namespace it is its own name.
    """

    operation: str
    group: str
    version: str
    resource: str
    subresource: str = ""
    namespace: str = ""

    @property
    def is_namespace(self) -> bool:
        """Whether it is a Namespace itself or a subresource of one."""
        return (self.group, self.version, self.resource) == ("", "v1", "namespaces")


def is_exempt(group: str, kind: str) -> bool:
    """Whether no webhook and no policy is asked about objects of a kind, since they could lock it forever."""
    return group == _GROUP and kind in _EXEMPT


def rules_match(rules: Iterable[Json], target: Target) -> bool:
    """Whether one of the rules (RuleWithOperations) matches."""
    return any(rule_matches(rule, target) for rule in rules)


def rule_matches(rule: Json, target: Target) -> bool:
    """Whether a rule (RuleWithOperations) matches."""
    return (
        _has_scope(rule.get("scope") or "*", target)
        and _has(rule.get("operations") or (), target.operation)
        and _has(rule.get("apiGroups") or (), target.group)
        and _has(rule.get("apiVersions") or (), target.version)
        and any(_is_resource(one, target) for one in rule.get("resources") or ())
    )


def _has(values: Iterable[str], wanted: str) -> bool:
    return any(value in ("*", wanted) for value in values)


def _has_scope(scope: str, target: Target) -> bool:
    is_cluster_wide = target.is_namespace or not target.namespace
    return scope == "*" or scope == ("Cluster" if is_cluster_wide else "Namespaced")


def _is_resource(text: str, target: Target) -> bool:
    resource, _, subresource = text.partition("/")
    return resource in ("*", target.resource) and subresource in ("*", target.subresource)
