"""Whether the defaults in a schema are valid (pkg/apiserver/schema/defaulting/validation.go)."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

from kubernetes_rules.custom_resources.correlation import same
from kubernetes_rules.custom_resources.embedded import NotObjectMeta, coerced, embedded_errors
from kubernetes_rules.custom_resources.objects import without_unknown
from kubernetes_rules.custom_resources.schema import Schema
from kubernetes_rules.custom_resources.values import default_errors as value_errors
from kubernetes_rules.printed import with_sorted_keys
from kubernetes_rules.validation import field
from kubernetes_rules.validation.field import FieldError

_META_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


@dataclass(frozen=True, slots=True)
class _Resource:
    """The embedded resource, or the object itself, in which a default lies, and the keys that lead there.

    An index is None in the keys.
    """

    schema: Schema
    keys: tuple[str | None, ...] = ()

    def at(self, key: str | None) -> _Resource:
        return replace(self, keys=(*self.keys, key))

    def holding(self, value: Any) -> Any:
        """A resource with nothing but its type and the value at the keys."""
        for key in reversed(self.keys):
            value = [value] if key is None else {key: value}
        return {"apiVersion": "validation/v1", "kind": "Validation"} | value


def default_errors(schema: Schema, path: str) -> list[FieldError]:
    """The errors of all defaults in the schema of a whole object."""
    root = replace(schema, x_embedded_resource=True)
    return _errors(root, _Resource(root), path, inside_meta=False)


def _errors(schema: Schema, resource: _Resource, path: str, *, inside_meta: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    if schema.x_embedded_resource:
        resource, inside_meta = _Resource(schema), False
    if schema.default is not None:
        check = _meta_errors(schema, resource, path) if inside_meta else _default_errors(schema, path)
        errors += check
    if schema.items is not None:
        errors += _errors(schema.items, resource.at(None), f"{path}.items", inside_meta=inside_meta)
    for name, entry in schema.properties.items():
        is_meta = schema.x_embedded_resource and name in _META_FIELDS
        here = f"{path}.properties[{name}]"
        errors += _errors(entry, resource.at(name), here, inside_meta=inside_meta or is_meta)
    return errors


def _default_errors(schema: Schema, path: str) -> list[FieldError]:
    here = f"{path}.default"
    errors: list[FieldError] = []
    is_pruned = same(without_unknown(schema, schema.default), schema.default)
    try:
        read, _ = coerced(schema, schema.default, here)
    except NotObjectMeta as refused:
        read = None
        errors.append(refused.error)
    if not is_pruned:
        shown = with_sorted_keys(schema.default if read is None else read)
        errors.append(field.invalid(here, shown, "must not have unknown fields"))
    if read is None:
        return errors
    return errors + (embedded_errors(schema, read, here) or value_errors(replace(schema, default=read), here))


def _meta_errors(schema: Schema, resource: _Resource, path: str) -> list[FieldError]:
    """The errors of a default within metadata: the whole metadata has to be valid with it."""
    here = f"{path}.default"
    shown = with_sorted_keys(schema.default)
    try:
        whole, _ = coerced(resource.schema, resource.holding(copy.deepcopy(schema.default)))
    except NotObjectMeta as refused:
        return [field.invalid(here, shown, f"must result in valid metadata: {refused.error}")]
    wrong = [str(error) for error in embedded_errors(resource.schema, whole)]
    if wrong:
        text = wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]"
        return [field.invalid(here, shown, f"must result in valid metadata: {text}")]
    return value_errors(schema, here)
