"""Reads, converts, prepares and checks the objects of custom kinds.

Go: customResourceStrategy in apiextensions-apiserver/pkg/registry/customresource, and the coercing decoder in
pkg/apiserver/customresource_handler.go.
"""

from __future__ import annotations

import json
from typing import Any

from envtest.embedded.api.resources import Resource
from envtest.embedded.api.statuses import Refused, details_of
from envtest.embedded.schema.bodies import NumberTooLarge, without_repeated
from envtest.embedded.schema.custom_kinds import CustomKind, object_metadata
from envtest.embedded.schema.decoding import Decoder, DecodingError
from kubernetes_rules.custom_resources import objects
from kubernetes_rules.custom_resources.embedded import NotObjectMeta
from kubernetes_rules.custom_resources.rules import rule_errors
from kubernetes_rules.custom_resources.rules.programs import compiled_schema
from kubernetes_rules.custom_resources.schema import Schema
from kubernetes_rules.validation import field as field_errors
from kubernetes_rules.validation.field import FieldError
from kubernetes_rules.validation.metadata import changed_metadata_errors, metadata_errors

Object = dict[str, Any]

_BLOCKING = frozenset(
    {
        *(field_errors.NOT_SUPPORTED, field_errors.REQUIRED, field_errors.TOO_LONG),
        *(field_errors.TOO_MANY, field_errors.TYPE_INVALID),
    }
)
_NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to "
    "complete validation"
)
_MOST_SHOWN = 25
"""How much of a body without a kind is shown a second time."""

_MOST_SEEN = 20_000
"""How many objects of a kind are kept in the form in which clients get them."""

_STANDARD_FINALIZERS = frozenset({"orphan", "foregroundDeletion", "kubernetes"})


def custom_of(resource: Resource) -> CustomKind:
    """What the definition says of a custom resource."""
    assert resource.custom is not None, resource
    return resource.custom


def check_may_create(resource: Resource, item: Object) -> None:
    """Raises Refused (403) while the definition of the kind is being deleted."""
    if resource.custom is not None and resource.custom.is_ending:
        name = item["metadata"].get("name", "")
        why = "create not allowed while custom resource definition is terminating"
        text = f'{resource.qualified_name} "{name}" is forbidden: {why}'
        raise Refused(403, text, details=details_of(resource.group, resource.plural, name))


def read(resource: Resource, body: Object) -> tuple[Object, list[str]]:
    """A copy of a body with defaults and without unknown fields, and what strict decoding refuses of it.

    Raises Refused (400).
    """
    kind = body.get("kind")
    if not kind or not isinstance(kind, str):
        text = json.dumps(body, separators=(",", ":"))
        start = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} ..."
        head = f"the object provided is unrecognized (must be of type {resource.kind}): "
        raise Refused(400, f"{head}Object 'Kind' is missing in '{text}' ({start})")
    found = body.get("apiVersion") or ""
    if found != resource.api_version:
        text = f"the API version in the data ({found}) does not match the expected API version"
        raise Refused(400, f"{text} ({resource.api_version})")
    try:
        return decoded(resource, body)
    except DecodingError as error:
        head = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
        raise Refused(400, f"{head}{error}") from error


def decoded(resource: Resource, body: Object) -> tuple[Object, list[str]]:
    """As ``read``, but whatever the kind of the object is; raises DecodingError."""
    decoder = Decoder()
    try:
        body, repeated = without_repeated(body)
        metadata = _metadata(decoder, body)
        item, unknown = objects.pruned(custom_of(resource).schema, {**body, "metadata": metadata})
    except (NotObjectMeta, NumberTooLarge) as error:
        raise DecodingError(str(error)) from error
    problems = [*repeated, *decoder.problems, *(f'unknown field "{path}"' for path in unknown)]
    return defaulted(resource, item), problems


def read_applied(body: Object) -> tuple[Object, list[str]]:
    """What is to be applied, and what strict decoding refuses of it; raises Refused (400)."""
    try:
        item, repeated = without_repeated(body)
    except NumberTooLarge as error:
        raise Refused(400, f"error decoding patch: {error}") from error
    return {**item, "metadata": item.get("metadata") or {}}, repeated


def _metadata(decoder: Decoder, body: Object) -> Object:
    """The metadata as ObjectMeta; raises DecodingError."""
    metadata = body.get("metadata") or {}
    if not isinstance(metadata, dict):
        words = {str: "string", bool: "bool", list: "array"}
        found = words.get(type(metadata), "number")
        raise DecodingError(f"json: cannot unmarshal {found} into Go value of type v1.ObjectMeta")
    read: Object = decoder.decode(metadata, object_metadata(), (None, "metadata", ""))
    return read


def defaulted(resource: Resource, item: Object) -> Object:
    """The object with the defaults of its schema; a built-in one as it is."""
    return item if resource.custom is None else objects.defaulted(resource.custom.schema, item)


def in_version(resource: Resource, item: Object) -> Object:
    """A stored object in the version of the resource; the object itself where that is built in.

    As Kubernetes reads it from its store: pruned and defaulted by the version in which it is stored, then
    converted (strategy None) and pruned once more.
    """
    custom = resource.custom
    if custom is None:
        return item
    # Stored objects never change, so what was made of one last holds as long as it is there.
    known = custom.seen.get(id(item))
    if known is not None and known[0] is item:
        return known[1]
    stored_as = custom.schemas.get(item["apiVersion"])
    found = item
    if stored_as is not None:
        found = objects.defaulted(stored_as, _pruned(stored_as, item))
    if item["apiVersion"] != resource.api_version:
        found = _pruned(custom.schema, {**found, "apiVersion": resource.api_version})
    # What is the same object is encoded once for all watches.
    found = item if found == item else found
    if len(custom.seen) >= _MOST_SEEN:
        custom.seen.clear()
    custom.seen[id(item)] = (item, found)
    return found


def as_stored(resource: Resource, item: Object) -> Object:
    """An object of the resource's version as it is stored; the object itself where that is built in."""
    if resource.custom is None or item["apiVersion"] == resource.custom.stored_as:
        return item
    stored_as = resource.custom.stored_as
    return _pruned(resource.custom.schemas[stored_as], {**item, "apiVersion": stored_as})


def _pruned(schema: Schema, item: Object) -> Object:
    """An object without what the schema does not know; as it is if what it embeds was never validated."""
    try:
        return objects.pruned(schema, item)[0]
    except NotObjectMeta:
        return item


def create_errors(resource: Resource, item: Object) -> list[FieldError]:
    """What is wrong with a new object."""
    errors = _type_errors(resource, item)
    if errors:
        return errors
    custom = custom_of(resource)
    errors = metadata_errors(item["metadata"], namespaced=resource.namespaced, standard_finalizers=False)
    errors += objects.schema_errors(custom.schema, item)
    errors += objects.scale_errors(custom.scale, item) if custom.scale else []
    return _with_rules(custom, item, None, errors, [])


def update_errors(
    resource: Resource, subresource: str, item: Object, old: Object, warnings: list[str]
) -> list[FieldError]:
    """What is wrong with an object that replaces ``old``, or whose status does.

    Adds to ``warnings`` what is unwise, and the rules that the object broke before.
    """
    errors = _type_errors(resource, item)
    if errors:
        return errors
    custom = custom_of(resource)
    errors = changed_metadata_errors(item["metadata"], old["metadata"], namespaced=resource.namespaced)
    if subresource == "status":
        errors += objects.status_errors(custom.schema, item, old)
    else:
        errors += objects.schema_errors(custom.schema, item, old)
    only_status = subresource == "status"
    errors += objects.scale_errors(custom.scale, item, only_status=only_status) if custom.scale else []
    errors = _with_rules(custom, item, old, errors, warnings)
    if not errors and not subresource:
        warn_of_finalizers(item, old, warnings)
    return errors


def _type_errors(resource: Resource, item: Object) -> list[FieldError]:
    """The errors of an object of another kind or version."""
    wanted = {"kind": resource.kind, "apiVersion": resource.api_version}
    return [
        field_errors.invalid(name, item.get(name), f"must be {value}")
        for name, value in wanted.items()
        if item.get(name) != value
    ]


def _with_rules(
    custom: CustomKind, item: Object, old: Object | None, errors: list[FieldError], warnings: list[str]
) -> list[FieldError]:
    """The errors, and those of the rules in CEL unless the object does not even fit its schema."""
    if compiled_schema(custom.schema) is None:
        return errors
    if any(one.type in _BLOCKING for one in errors):
        return [*errors, field_errors.invalid("<nil>", None, _NOT_CHECKED)]
    return errors + rule_errors(custom.schema, item, old, warnings)


def warn_of_finalizers(item: Object, old: Object | None, warnings: list[str]) -> None:
    """Warn of new finalizers with names that others might use as well."""
    before = (old or {"metadata": {}})["metadata"].get("finalizers") or ()
    for name in sorted(set(item["metadata"].get("finalizers") or ()) - set(before)):
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            path = " including a path (/)" if "." in name else ""
            warnings.append(
                f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name{path} to avoid '
                "accidental conflicts with other finalizer writers"
            )
