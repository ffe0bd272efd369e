"""A write that admission judges, and whether match rules match it.

Sources: k8s.io/apiserver/pkg/admission (Attributes), plugin/webhook/predicates and plugin/policy/matching.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubernetes_rules.selectors import label_selector_matches

Object = dict[str, Any]
Json = Mapping[str, Any]
Version = tuple[str, str]
"""A group and a version under which the same resource is served."""

_EXEMPT = frozenset((
    "validatingwebhookconfigurations", "mutatingwebhookconfigurations", "validatingadmissionpolicies",
    "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Write:
    """A request to create, update, delete or connect to an object.

    ``operation`` is CREATE, UPDATE, DELETE or CONNECT. ``namespace`` is that of the request: for a namespace
    its own name. ``user`` has ``username``, ``uid``, ``groups`` and ``extra``; ``options`` are the options of
    the verb as an object. ``is_custom``: the object is a custom resource. ``others`` are the other groups and
    versions under which the resource is served.
    """

    group: str
    version: str
    kind: str
    resource: str
    subresource: str
    namespace: str
    name: str
    operation: str
    item: Object | None
    old: Object | None
    user: Json
    options: Object | None = None
    is_dry: bool = False
    is_custom: bool = False
    others: Sequence[Version] = field(default=())

    @property
    def is_exempt(self) -> bool:
        """Whether no policy and no webhook judges the write: it changes one of these themselves."""
        return self.group == "admissionregistration.k8s.io" and self.resource in _EXEMPT

    @property
    def shown_name(self) -> str:
        """The name in refusals, also of an object whose name is still to be generated."""
        metadata = (self.item or {}).get("metadata") or {}
        found: str = self.name or metadata.get("name") or metadata.get("generateName") or "Unknown"
        return found


NamespaceOf = Callable[[str], Object | None]
"""Finds a namespace."""


class NamespaceMissing(Exception):
    """A selector asks for the labels of a namespace that does not exist."""


def rules_match(rules: Sequence[Json], write: Write, policy: str | None) -> Version | None:
    """The group and version under which the first rule matches, None if none does.

    ``policy`` is matchPolicy: with Equivalent a rule also matches under the other versions of the resource.
    """
    versions = [(write.group, write.version)]
    if policy == "Equivalent":
        versions += [one for one in write.others if one != versions[0]]
    for version in versions:
        for rule in rules:
            names = rule.get("resourceNames")
            if _matches(rule, write, version) and (not names or write.name in names):
                return version
    return None


def _matches(rule: Json, write: Write, version: Version) -> bool:
    is_namespace = (write.group, write.resource) == ("", "namespaces")
    scope = rule.get("scope") or "*"
    in_cluster = is_namespace or not write.namespace
    if scope not in ("*", "Cluster" if in_cluster else "Namespaced"):
        return False
    wanted = (("operations", write.operation), ("apiGroups", version[0]), ("apiVersions", version[1]))
    if not all("*" in (rule.get(key) or ()) or value in (rule.get(key) or ()) for key, value in wanted):
        return False
    for entry in rule.get("resources") or ():
        resource, _, subresource = entry.partition("/")
        if resource in ("*", write.resource) and subresource in ("*", write.subresource):
            return True
    return False


def selectors_match(criteria: Json, write: Write, namespace_of: NamespaceOf) -> bool:
    """Whether namespaceSelector and objectSelector match. Raises NamespaceMissing."""
    return _namespace_matches(
        criteria.get("namespaceSelector") or {}, write, namespace_of
    ) and _object_matches(criteria.get("objectSelector") or {}, write)


def _is_empty(selector: Json) -> bool:
    return not selector.get("matchLabels") and not selector.get("matchExpressions")


def _labels(item: Json | None) -> Json:
    return ((item or {}).get("metadata") or {}).get("labels") or {}


def _namespace_matches(selector: Json, write: Write, namespace_of: NamespaceOf) -> bool:
    is_namespace = write.resource == "namespaces"
    if _is_empty(selector) or not (write.namespace or is_namespace):
        return True
    if is_namespace and not write.subresource and write.operation in ("CREATE", "UPDATE"):
        return label_selector_matches(selector, _labels(write.item))
    namespace = namespace_of(write.namespace)
    if namespace is None:
        raise NamespaceMissing(f'namespaces "{write.namespace}" not found')
    return label_selector_matches(selector, _labels(namespace))


def _object_matches(selector: Json, write: Write) -> bool:
    if _is_empty(selector):
        return True
    items = (item for item in (write.item, write.old) if item is not None)
    return any(label_selector_matches(selector, _labels(item)) for item in items)


def resources_match(criteria: Json, write: Write, namespace_of: NamespaceOf) -> Version | None:
    """Under which group and version MatchResources matches a write, None if it does not.

    Raises NamespaceMissing if all but the namespace selector matches, and the namespace is not there.
    """
    missing: NamespaceMissing | None = None
    try:
        if not selectors_match(criteria, write, namespace_of):
            return None
    except NamespaceMissing as error:
        missing = error
    policy = criteria.get("matchPolicy")
    if rules_match(criteria.get("excludeResourceRules") or (), write, policy) is not None:
        return None
    rules = criteria.get("resourceRules")
    found = rules_match(rules, write, policy) if rules else (write.group, write.version)
    if found is not None and missing is not None:
        raise missing
    return found
