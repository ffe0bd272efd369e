"""Reads objects for get and list: pages, and earlier versions."""

from __future__ import annotations

import base64
import json
from functools import partial
from typing import Any

from envtest.embedded.api import subresources
from envtest.embedded.api.requests import MOST_DIGITS, Request, query_integer
from envtest.embedded.api.resources import Resource
from envtest.embedded.api.selecting import selection
from envtest.embedded.api.statuses import Refused, details_of, plain_go_error
from envtest.embedded.api.store import Key, Store
from envtest.embedded.shown.tables import MakeTable, table_of
from kubernetes_rules.printed import quoted

Object = dict[str, Any]


def not_found(resource: Resource, name: str) -> Refused:
    """The 404 for an object that is not there."""
    details = details_of(resource.group, resource.plural, name)
    return Refused(404, f'{resource.qualified_name} "{name}" not found', details=details)


def shown(item: Object, subresource: str) -> Object:
    """A stored object in the form of a subresource."""
    if subresource == subresources.SCALE:
        return subresources.scale_of(item)
    return item


def table_of_resource(resource: Resource) -> MakeTable:
    """Makes tables of the resource's objects."""
    return partial(table_of, resource.plural)


def list_page(
    store: Store, request: Request, resource: Resource, missing: frozenset[str], at_version: int | None
) -> Object:
    """The objects that the selectors select, in pages when ``limit`` asks for them.

    All pages show the objects as they were when the first was read; ``at_version`` is an earlier
    version that is to be shown. Raises Refused (400, 410, 422).
    """
    selects = selection(request, resource, missing)
    start, version = _continued(store, request)
    asked = asked_version(request)
    if start is not None and asked:
        raise Refused(400, "specifying resource version is not allowed when using continue")
    with store.changed:
        version = version or at_version or store.resource_version
        if version < store.oldest(resource.collection):
            raise Refused(410, "The resourceVersion for the provided list is too old.")
        if max(version, asked) > store.resource_version:
            raise too_large_version(max(version, asked), store.resource_version)
        if version < store.resource_version:
            entries = store.at_version(resource.collection, version)
        else:
            entries = store.items(resource.collection)
    rest = [(key, item) for key, item in entries if (start is None or key > start) and selects(item)]
    limit = max(0, query_integer(request, "limit") or 0) or len(rest)
    if request.query.get("resourceVersion") == "0":
        # Kubernetes answers from its cache, which has no pages.
        limit = len(rest)
    page = rest[:limit]
    metadata: Object = {"resourceVersion": str(version)}
    if len(rest) > limit:
        # Clients send it back as it is. As with etcd it holds the version of the list and the last key.
        token = json.dumps({"rv": version, "after": page[-1][0]})
        metadata["continue"] = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
        # With a selector the number is unknown before the rest is read, and is left out.
        if not request.query.get("labelSelector") and not request.query.get("fieldSelector"):
            metadata["remainingItemCount"] = len(rest) - limit
    return {
        "kind": resource.list_kind,
        "apiVersion": resource.api_version,
        "metadata": metadata,
        "items": [item for _, item in page],
    }


def asked_version(request: Request) -> int:
    """The query's resourceVersion, 0 where it has none; raises Refused (400 for a list, else 500)."""
    text = request.query.get("resourceVersion") or "0"
    if text.isdecimal() and text.isascii() and len(text) <= MOST_DIGITS:
        return int(text)
    message = f"resourceVersion: Invalid value: {quoted(text)}"
    if request.verb != "list":
        raise plain_go_error(message)
    raise Refused(400, f"invalid resource version: {message}")


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
        content = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        start, version = (content["after"][0], content["after"][1]), int(content["rv"])
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise Refused(400, "invalid continue token: continue key is not valid") from error
    if version < store.compacted:
        raise Refused(
            410,
            "The provided continue parameter is too old to display a consistent list result.",
        )
    return start, version
