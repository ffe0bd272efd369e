"""Reads objects for get, list and watch: selectors, pages, and earlier versions."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from envtest.embedded.api import custom_objects, subresources
from envtest.embedded.api.requests import Request, query_integer
from envtest.embedded.api.resources import Resource
from envtest.embedded.api.statuses import Refused, details_of, invalid, plain_go_error
from envtest.embedded.api.store import Key, Store
from envtest.embedded.shown import events
from envtest.embedded.shown.custom_columns import custom_table
from envtest.embedded.shown.tables import MakeTable, table_of
from kubernetes_rules.selectors import label_requirement_holds
from kubernetes_rules.validation.field import forbidden, not_supported

Object = dict[str, Any]

_MATCHES = ("Exact", "NotOlderThan", "")

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

# JSON from Go has no field for false (omitempty); its selectors compare with the word all the same.
_FALSE_WHEN_ABSENT = frozenset({"spec.unschedulable", "spec.hostNetwork"})
_SET_REQUIREMENT = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s+\((?P<values>[^)]*)\)$")
_SET_OPERATORS = {"in": "In", "notin": "NotIn"}


def not_found(resource: Resource, name: str) -> Refused:
    """The 404 for an object that is not there."""
    details = details_of(resource.group, resource.plural, name)
    return Refused(404, f'{resource.qualified_name} "{name}" not found', details=details)


def shown(resource: Resource, item: Object, subresource: str = "") -> Object:
    """A stored object in the form of the requested version, or of a subresource."""
    item = custom_objects.in_version(resource, item)
    if subresource == subresources.SCALE:
        return subresources.scale_of(resource, item)
    if resource.group == events.GROUP:
        return {**events.from_core(item), "apiVersion": resource.api_version}
    return item


def table_of_resource(resource: Resource) -> MakeTable:
    """Makes tables of the resource's objects."""
    if resource.custom is not None:
        return partial(custom_table, resource.custom.columns)
    return partial(table_of, resource.plural)


def selection(request: Request, resource: Resource, missing: frozenset[str]) -> Callable[[Object], bool]:
    """The predicate of the request's namespace, name and selectors; raises Refused (400)."""
    text = request.query.get("fieldSelector", "")
    by_field = _field_selector(text, resource, missing)
    by_label = _label_selector(request.query.get("labelSelector", ""))

    def selects(item: Object) -> bool:
        metadata = item["metadata"]
        return (
            (not request.namespace or metadata.get("namespace", "") == request.namespace)
            and (not request.name or metadata["name"] == request.name)
            and by_field(item)
            and by_label(item)
        )

    return selects


def list_page(
    store: Store, request: Request, resource: Resource, missing: frozenset[str], at_version: int | None
) -> Object:
    """The objects that the selectors select, in pages when ``limit`` asks for them.

    All pages show the objects as they were when the first was read; ``at_version`` is an earlier
    version that is to be shown. Raises Refused (400, 410, 422).
    """
    # All of the query is checked before anything is read.
    selects = selection(request, resource, missing)
    start, version = _continued(store, request)
    asked, exact = asked_version(request), _is_exact(request)
    if at_version is None and exact:
        at_version = asked
    query_integer(request, "timeoutSeconds")
    with store.changed:
        version = version or at_version or store.resource_version
        if version < store.oldest(resource.collection):
            raise Refused(410, "The resourceVersion for the provided list is too old.")
        if version > store.resource_version:
            raise too_large_version(version, store.resource_version)
        if version < store.resource_version:
            entries = store.at_version(resource.collection, version)
        else:
            entries = store.items(resource.collection)
    rest = [(key, item) for key, item in entries if (start is None or key > start) and selects(item)]
    limit = max(0, query_integer(request, "limit") or 0) or len(rest)
    page = rest[:limit]
    metadata: Object = {"resourceVersion": str(version)}
    if resource.custom is not None:
        # Go leaves an empty text out, but writes what it keeps as a map.
        metadata["continue"] = ""
    if len(rest) > limit:
        # Clients send it back as it is. As with etcd it holds the version of the list and the last key.
        token = json.dumps({"rv": version, "after": page[-1][0]})
        metadata["continue"] = base64.urlsafe_b64encode(token.encode()).decode()
        # With a selector the number is unknown before the rest is read, and is left out.
        if not request.query.get("labelSelector") and not request.query.get("fieldSelector"):
            metadata["remainingItemCount"] = len(rest) - limit
    return {
        "kind": resource.list_kind,
        "apiVersion": resource.api_version,
        "metadata": metadata,
        "items": [shown(resource, item) for _, item in page],
    }


def asked_version(request: Request) -> int:
    """The query's resourceVersion, 0 where it has none; raises Refused (400; 500 for a watch)."""
    text = request.query.get("resourceVersion") or "0"
    if text.isdecimal() and text.isascii():
        return int(text)
    message = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
    if request.verb == "watch":
        raise plain_go_error(message)
    raise Refused(400, f"invalid resource version: {message}")


def _is_exact(request: Request) -> bool:
    """Whether the list is to be of exactly its resourceVersion; raises Refused (422)."""
    match = request.query.get("resourceVersionMatch", "")
    errors = []
    if match not in _MATCHES:
        errors.append(not_supported("resourceVersionMatch", match, _MATCHES))
    elif match and not request.query.get("resourceVersion"):
        text = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        errors.append(forbidden("resourceVersionMatch", text))
    if errors:
        raise invalid("meta.k8s.io", "ListOptions", "", errors)
    return match == "Exact"


def too_large_version(version: int, current: int) -> Refused:
    """The answer to a version that the store does not have yet (NewTooLargeResourceVersionError)."""
    text = "Too large resource version"
    causes = [{"reason": "ResourceVersionTooLarge", "message": text}]
    details = {"causes": causes, "retryAfterSeconds": 1}
    return Refused(504, f"Timeout: {text}: {version}, current: {current}", details=details)


def _continued(store: Store, request: Request) -> tuple[Key | None, int]:
    """Where a page starts and the version of its list; raises Refused (400, 410)."""
    token = request.query.get("continue")
    if not token:
        return None, 0
    try:
        content = json.loads(base64.urlsafe_b64decode(token))
        start, version = (content["after"][0], content["after"][1]), int(content["rv"])
    except (binascii.Error, ValueError, KeyError, TypeError, IndexError) as error:
        raise Refused(400, f"invalid continue token: continue key is not valid: {error}") from error
    if version < store.compacted:
        raise Refused(
            410,
            "The provided continue parameter is too old to display a consistent list result. You can start a "
            "new list without the continue parameter.",
        )
    return start, version


def _field_value(item: Object, path: str) -> str:
    """The value at a dotted path as a selector sees it: a string, empty when absent."""
    # The selector of that name compares the component alone (core/v1, ToSelectableFields of events).
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


def _field_selector(
    text: str, resource: Resource, without: frozenset[str] = frozenset()
) -> Callable[[Object], bool]:
    """The predicate of a field selector like ``spec.nodeName=a,spec.driver!=b``.

    Raises Refused (400) for a field that cannot be selected by, or that is in ``without``: an older server
    would not know it.
    """
    known = ({"metadata.name", "metadata.namespace"} | _FIELDS_OF.get(resource.built_in, set())) - without
    if resource.custom is not None:
        known |= set(resource.custom.selectable)
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
    return lambda item: all((_field_value(item, path) == value) is equal for path, value, equal in terms)


def _everything(_item: Object) -> bool:
    return True


def _label_selector(text: str) -> Callable[[Object], bool]:
    """The predicate of a label selector such as ``a=b,c!=d,e,!f,g in (h,i),j notin (k)``."""
    if not text.strip():
        return _everything
    requirements = [_requirement(term.strip()) for term in _split_terms(text) if term.strip()]

    def selects(item: Object) -> bool:
        labels = item.get("metadata", {}).get("labels") or {}
        return all(label_requirement_holds(one, labels) for one in requirements)

    return selects


def _split_terms(text: str) -> list[str]:
    """The terms between commas outside of parentheses."""
    # A comma with a closing bracket behind it and no opening one before that is within ``in (a,b)``.
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
