"""Reads, converts, prepares and checks the objects of custom kinds.

Go: customResourceStrategy in apiextensions-apiserver/pkg/registry/customresource, and the coercing decoder in
pkg/apiserver/customresource_handler.go.
"""

from __future__ import annotations

import json
from typing import Any

from envtest.embedded.api.requests import Request
from envtest.embedded.api.resources import Resource
from envtest.embedded.api.statuses import Refused, details_of
from envtest.embedded.schema.custom_kinds import object_metadata
from envtest.embedded.schema.decoding import Decoder, DecodingError

Object = dict[str, Any]


def check_scope(resource: Resource, request: Request) -> None:
    """Raises Refused (404) where the path has a namespace and the custom kind none, or the other way."""
    if resource.custom is None:
        return
    is_in_namespace = bool(request.namespace)
    if is_in_namespace != resource.namespaced and not (
        resource.namespaced and request.verb in ("list", "watch")
    ):
        raise Refused(404, "the server could not find the requested resource", details={})


def check_may_create(resource: Resource, item: Object) -> None:
    """Raises Refused (403) while the definition of the kind is being deleted."""
    if resource.custom is not None and resource.custom.is_ending:
        name = item["metadata"].get("name", "")
        why = "create not allowed while custom resource definition is terminating"
        text = f'{resource.qualified_name} "{name}" is forbidden: {why}'
        raise Refused(403, text, details=details_of(resource.group, resource.plural, name))


def read(resource: Resource, body: Object) -> tuple[Object, list[str]]:
    """A body as its own copy with defaults and without unknown fields, and the paths of these.

    Raises Refused (400).
    """
    kind = body.get("kind")
    if not kind or not isinstance(kind, str):
        text = json.dumps(body, separators=(",", ":"))
        start = text if len(text) <= 25 else f"{text[:25]} ..."
        head = f"the object provided is unrecognized (must be of type {resource.kind}): "
        raise Refused(400, f"{head}Object 'Kind' is missing in '{text}' ({start})")
    found = body.get("apiVersion") or ""
    if found != resource.api_version:
        text = f"the API version in the data ({found}) does not match the expected API version"
        raise Refused(400, f"{text} ({resource.api_version})")
    decoder = Decoder()
    item = dict(body)
    try:
        metadata = decoder.decode(body.get("metadata") or {}, object_metadata(), "metadata")
    except DecodingError as error:
        head = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
        raise Refused(400, f"{head}{error}") from error
    return {**item, "metadata": metadata}, decoder.unknown


def in_version(resource: Resource, item: Object) -> Object:
    """A stored object in the version of the resource; the object itself where that is built in."""
    if resource.custom is None or item["apiVersion"] == resource.api_version:
        return item
    return {**item, "apiVersion": resource.api_version}


def as_stored(resource: Resource, item: Object) -> Object:
    """An object of the resource's version as it is stored; the object itself where that is built in."""
    if resource.custom is None or item["apiVersion"] == resource.custom.stored_as:
        return item
    return {**item, "apiVersion": resource.custom.stored_as}
