"""Selects objects by their namespace, name, labels and fields, as list, watch and deletecollection do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from envtest.embedded.api.requests import Request
from envtest.embedded.api.resources import Resource
from envtest.embedded.api.statuses import Refused
from kubernetes_rules.selector_texts import (
    FieldTerm,
    SelectorInvalid,
    parse_field_selector,
    parse_label_selector,
)
from kubernetes_rules.selectors import label_requirement_holds

Object = dict[str, Any]

_NAME, _NAMESPACE = "metadata.name", "metadata.namespace"
_OF_EVENTS = tuple(
    f"involvedObject.{name}"
    for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
)
_FIELDS_OF: dict[tuple[str, str], frozenset[str]] = {
    ("", "events"): frozenset({*_OF_EVENTS, "reason", "reportingComponent", "source", "type", _NAMESPACE}),
    ("", "namespaces"): frozenset({"status.phase"}),
    ("", "nodes"): frozenset({"spec.unschedulable"}),
    ("", "pods"): frozenset(
        {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"}
        | {"spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName"}
        | {_NAMESPACE}
    ),
    ("", "secrets"): frozenset({"type", _NAMESPACE}),
    ("", "services"): frozenset({"spec.clusterIP", "spec.type", _NAMESPACE}),
    ("batch", "jobs"): frozenset({"status.successful", _NAMESPACE}),
    ("resource.k8s.io", "resourceslices"): frozenset({"spec.nodeName", "spec.driver", "spec.pool.name"}),
}
"""Field selectors beside the name, of the resources that have their own (AddFieldLabelConversionFunc)."""

# JSON from Go has no field for a false or a zero (omitempty); selectors compare with the text all the same.
_WHEN_ABSENT = {"spec.unschedulable": "false", "spec.hostNetwork": "false", "status.succeeded": "0"}
_STORED_AS = {
    # The selector of that name compares the component alone, that of a Job counts the succeeded pods.
    "source": "source.component",
    "status.successful": "status.succeeded",
}


def selection(request: Request, resource: Resource, missing: frozenset[str]) -> Callable[[Object], bool]:
    """The predicate of the request's namespace, name and selectors; raises Refused (400).

    ``missing`` are field selectors that are refused, as by an older server that does not know them.
    """
    try:
        requirements = parse_label_selector(request.query.get("labelSelector", ""))
        terms = parse_field_selector(request.query.get("fieldSelector", ""))
    except SelectorInvalid as error:
        raise Refused(400, str(error)) from error
    terms = [_known(term, resource, missing) for term in terms]
    if request.name and terms and FieldTerm(_NAME, request.name, is_equal=True) not in terms:
        raise Refused(400, "fieldSelector metadata.name doesn't match requested name")

    def selects(item: Object) -> bool:
        metadata = item["metadata"]
        labels = metadata.get("labels") or {}
        return (
            (not request.namespace or metadata.get("namespace", "") == request.namespace)
            and (not request.name or metadata["name"] == request.name)
            and all((_field_value(item, term.field) == term.value) is term.is_equal for term in terms)
            and all(label_requirement_holds(one, labels) for one in requirements)
        )

    return selects


def _known(term: FieldTerm, resource: Resource, missing: frozenset[str]) -> FieldTerm:
    """The term; raises Refused (400) for an unknown field."""
    name = term.field
    own = _FIELDS_OF.get((resource.group, resource.plural))
    if own is None:
        if name in (_NAME, _NAMESPACE):
            return term
        text = f'{json.dumps(name)} is not a known field selector: only "{_NAME}", "{_NAMESPACE}"'
        raise Refused(400, text)
    if (name == _NAME or name in own) and name not in missing:
        return term
    if resource.plural == "jobs":
        raise Refused(400, f'field label "{name}" not supported for Job')
    of = f" for {resource.api_version}, Kind={resource.kind}" if resource.plural == "resourceslices" else ""
    raise Refused(400, f"field label not supported{of}: {name}")


def _field_value(item: Object, path: str) -> str:
    """The value at a dotted path as a selector sees it: a string, empty when absent."""
    path = _STORED_AS.get(path, path)
    value: Any = item
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return _WHEN_ABSENT.get(path, "")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
