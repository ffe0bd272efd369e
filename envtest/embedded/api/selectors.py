"""Decides which objects a label or field selector selects."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from envtest.embedded.api.statuses import Refused
from kubernetes_rules.node_selectors import requirement_holds

if TYPE_CHECKING:
    from collections.abc import Callable

Object = dict[str, Any]

_FIELDS_OF = {
    "resourceslices": {"spec.nodeName", "spec.driver", "spec.pool.name"},
    "pods": {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"}
    | {"spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName"},
    "events": {f"involvedObject.{name}" for name in ("kind", "namespace", "name", "uid", "apiVersion")}
    | {"involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "type", "source"}
    | {"reportingComponent"},
    "nodes": {"spec.unschedulable"},
    "namespaces": {"status.phase"},
}
"""Field selectors beside metadata.name and metadata.namespace, which every resource has."""

_FALSE_WHEN_ABSENT = frozenset({"spec.unschedulable", "spec.hostNetwork"})
_SET_REQUIREMENT = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s+\((?P<values>[^)]*)\)$")
_SET_OPERATORS = {"in": "In", "notin": "NotIn"}


def field_value(item: Object, path: str) -> str:
    """The value at a dotted path as a selector sees it: a string, empty when absent."""
    if path == "source":
        path = "source.component"
    value: Any = item
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None and path in _FALSE_WHEN_ABSENT:
        return "false"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def field_selector(
    text: str, resource: str, without: frozenset[str] = frozenset()
) -> Callable[[Object], bool]:
    """The predicate of a field selector like ``spec.nodeName=a,spec.driver!=b``.

    Raises Refused (400) for a field that the resource has no selector for, or that ``without``
    takes away, as an older server would.
    """
    known = ({"metadata.name", "metadata.namespace"} | _FIELDS_OF.get(resource, set())) - without
    terms: list[tuple[str, str, bool]] = []
    for term in filter(None, text.split(",")):
        parts = re.split(r"(!=|==|=)", term, maxsplit=1)
        if len(parts) != 3:
            raise Refused(400, f"invalid field selector: {term!r} has no operator")
        path, operator, value = parts
        if path not in known:
            raise Refused(400, f"field label not supported: {path}")
        terms.append((path, value, operator != "!="))
    if not terms:
        return _everything
    return lambda item: all((field_value(item, path) == value) is equal for path, value, equal in terms)


def _everything(_item: Object) -> bool:
    return True


def label_selector(text: str) -> Callable[[Object], bool]:
    """The predicate of a label selector such as ``a=b,c!=d,e,!f,g in (h,i),j notin (k)``."""
    if not text.strip():
        return _everything
    requirements = [_requirement(term.strip()) for term in _split_terms(text) if term.strip()]

    def selects(item: Object) -> bool:
        labels = item.get("metadata", {}).get("labels") or {}
        return all(requirement_holds(one, labels) for one in requirements)

    return selects


def _split_terms(text: str) -> list[str]:
    """The terms between commas that stand outside of parentheses."""
    return re.split(r",(?![^(]*\))", text)


def _requirement(term: str) -> Object:
    """The requirement of a term, as NodeSelectorRequirement has them."""
    match = _SET_REQUIREMENT.match(term)
    if match is not None:
        values = [value.strip() for value in match["values"].split(",")]
        return {"key": match["key"], "operator": _SET_OPERATORS[match["operator"]], "values": values}
    if "=" not in term:
        key = term.removeprefix("!")
        return {"key": key, "operator": "Exists" if key == term else "DoesNotExist"}
    key, operator, value = re.split(r"(!=|==|=)", term, maxsplit=1)
    return {"key": key, "operator": "NotIn" if operator == "!=" else "In", "values": [value]}
