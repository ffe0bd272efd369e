"""Prunes, defaults and validates custom objects by the schema of their version.

Sources: k8s.io/apiextensions-apiserver/pkg/apiserver/schema (pruning, defaulting, listtype) and
pkg/registry/customresource (strategy.go, status_strategy.go, validator.go). A request's body is pruned, then
defaulted, then validated; a stored object is pruned and defaulted when it is read.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kubernetes_rules.custom_resources.embedded import coerced, embedded_errors
from kubernetes_rules.custom_resources.schema import Schema
from kubernetes_rules.custom_resources.values import value_errors
from kubernetes_rules.printed import json_text, plain, type_name, with_sorted_keys
from kubernetes_rules.validation import field
from kubernetes_rules.validation.field import FieldError

Object = dict[str, Any]

_META_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
_LARGEST_INT32 = 2**31 - 1


def pruned(schema: Schema, item: Object) -> tuple[Object, list[str]]:
    """An object without what its schema does not know, and the sorted paths of what was left out.

    The metadata of the object itself is left alone; that of embedded resources is read as ObjectMeta. Nulls
    that are not allowed and have no default are left out too, and are not in the paths. Raises
    embedded.NotObjectMeta if the metadata of an embedded resource has wrong types.
    """
    unknown: list[str] = []
    result = _pruned(item, replace(schema, x_embedded_resource=True), "", unknown)
    result = _without_nulls(result, schema)
    result, unknown_metadata = coerced(schema, result)
    return result, sorted(unknown) + sorted(unknown_metadata)


def without_unknown(schema: Schema, value: Any) -> Any:
    """A value without what its schema does not know; metadata of embedded resources is left alone."""
    return _pruned(value, schema, "", [])


def _pruned(value: Any, schema: Schema | None, path: str, unknown: list[str]) -> Any:
    if isinstance(value, list):
        if schema is not None and schema.x_preserve_unknown_fields:
            # Kubernetes goes on with the entries as if they preserved unknown fields too.
            items = schema.items and replace(schema.items, x_preserve_unknown_fields=True)
            if items is None:
                return value
        else:
            items = schema and schema.items
        return [_pruned(entry, items, f"{path}[{index}]", unknown) for index, entry in enumerate(value)]
    if not isinstance(value, dict):
        return value
    result: Object = {}
    for key, entry in value.items():
        here = f"{path}.{key}" if path else key
        if schema is not None and schema.x_embedded_resource and key in _META_FIELDS:
            result[key] = entry
        elif schema is not None and (key in schema.properties or schema.knows_keys):
            result[key] = _pruned(entry, schema.child(key), here, unknown)
        elif schema is not None and schema.x_preserve_unknown_fields:
            result[key] = entry
        elif schema is None or key not in _META_FIELDS or path:
            unknown.append(here)
    return result


def _without_nulls(value: Any, schema: Schema | None) -> Any:
    """The value without nulls in maps that are neither allowed nor replaced by a default."""
    if isinstance(value, list):
        return [_without_nulls(entry, schema and schema.items) for entry in value]
    if not isinstance(value, dict):
        return value
    result: Object = {}
    for key, entry in value.items():
        child = schema and schema.child(key)
        if not (entry is None and child is not None and not child.nullable and child.default is None):
            result[key] = _without_nulls(entry, child)
    return result


def defaulted(schema: Schema, item: Object) -> Object:
    """An object with the defaults of its schema where a value is missing, or null and not allowed to be."""
    result: Object = _defaulted(item, schema)
    return result


def _defaulted(value: Any, schema: Schema | None) -> Any:
    if schema is None:
        return value
    if isinstance(value, list):
        return [_defaulted(_unless_null(entry, schema.items), schema.items) for entry in value]
    if not isinstance(value, dict):
        return value
    result: Object = dict(value)
    for key, child in schema.properties.items():
        if child.default is not None and _unless_null(result.get(key), child) is not result.get(key, ...):
            result[key] = copy.deepcopy(child.default)
    for key, entry in result.items():
        known = schema.properties.get(key)
        if known is None:
            known, entry = schema.values, _unless_null(entry, schema.values)  # noqa: PLW2901 - of a map
        result[key] = _defaulted(entry, known)
    return result


def _unless_null(value: Any, schema: Schema | None) -> Any:
    """The value, or the default, possibly none, instead of a null that is not allowed."""
    if value is None and schema is not None and not schema.nullable:
        return copy.deepcopy(schema.default)
    return value


def schema_errors(schema: Schema, item: Object, old: Object | None = None) -> list[FieldError]:
    """The errors of an object by its schema, on update with the object as it was before.

    Neither the object's own metadata nor its rules in CEL are checked here.
    """
    errors = value_errors(schema, item) if old is None else value_errors(schema, item, old=old)
    errors += embedded_errors(schema, item)
    if old is None or not _list_errors(schema, old):
        errors += _list_errors(schema, item)
    return errors


def status_errors(schema: Schema, item: Object, old: Object) -> list[FieldError]:
    """The errors of an update of the status subresource by the object's schema."""
    errors: list[FieldError] = []
    status_schema = schema.properties.get("status")
    if "status" in item and status_schema is not None:
        errors += value_errors(status_schema, item["status"], "status", old.get("status"))
    if not _list_errors(schema, old):
        errors += _list_errors(schema, item)
    return errors


def _list_errors(schema: Schema, value: Any, path: str = "") -> list[FieldError]:
    """The duplicates in all lists below a value that are sets or maps."""
    errors: list[FieldError] = []
    if isinstance(value, dict):
        for key, entry in value.items():
            if schema.values is not None:
                errors += _list_errors(schema.values, entry, f"{path}[{key}]")
            known = schema.properties.get(key)
            if known is not None:
                errors += _list_errors(known, entry, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        if schema.x_list_type == "set":
            errors += _set_errors(value, value, path)
        elif schema.x_list_type == "map":
            errors += _map_errors(schema, value, path)
        if schema.items is not None:
            for index, entry in enumerate(value):
                errors += _list_errors(schema.items, entry, f"{path}[{index}]")
    return errors


def _map_errors(schema: Schema, value: list[Any], path: str) -> list[FieldError]:
    for index, entry in enumerate(value):
        if entry is not None and not isinstance(entry, dict):
            text = "must be an object for an array of list-type map"
            return [field.invalid(f"{path}[{index}]", with_sorted_keys(entry), text)]
    keys = schema.x_list_map_keys
    found = [{key: entry[key] for key in keys if key in (entry or {})} for entry in value]
    # Kubernetes compares one key as it is: 1 and 1.0 differ, while in JSON they are the same.
    compared = [next(iter(entry.values()), ...) for entry in found] if len(keys) == 1 else found
    return _set_errors(compared, found, path)


def _set_errors(compared: Iterable[Any], shown: list[Any], path: str) -> list[FieldError]:
    """One error for the first repetition of each entry."""
    counts: dict[Any, int] = {}
    errors: list[FieldError] = []
    for index, entry in enumerate(compared):
        compound = isinstance(entry, dict | list)
        key = json_text(with_sorted_keys(entry)) if compound else (type(entry), entry)
        counts[key] = counts.get(key, 0) + 1
        if counts[key] == 2:
            errors.append(field.duplicate(f"{path}[{index}]", with_sorted_keys(shown[index])))
    return errors


def scale_errors(scale: Mapping[str, str], item: Object, *, only_status: bool = False) -> list[FieldError]:
    """The errors of the values that the scale subresource shows; ``scale`` is that of the definition."""
    errors: list[FieldError] = []
    if not only_status:
        errors += _replicas_errors(scale["specReplicasPath"], item)
    errors += _replicas_errors(scale["statusReplicasPath"], item)
    path = scale.get("labelSelectorPath")
    if path is not None:
        errors += _value_at(path, item, "string", str)[1]
    return errors


def _replicas_errors(path: str, item: Object) -> list[FieldError]:
    value, errors = _value_at(path, item, "int64", int)
    if errors or value is None:
        return errors
    if value < 0:
        errors.append(field.invalid(path, value, "should be a non-negative integer"))
    elif value > _LARGEST_INT32:
        errors.append(field.invalid(path, value, f"should be less than or equal to {_LARGEST_INT32}"))
    return errors


def _value_at(path: str, item: Object, wanted: str, kind: type) -> tuple[Any, list[FieldError]]:
    """The value at a path such as ``.spec.replicas``; None if it is missing or has another type."""
    value: Any = item
    keys = path.removeprefix(".").split(".")
    for index, key in enumerate(keys):
        if value is None:
            return None, []
        if not isinstance(value, dict):
            return None, [_accessor_error(path, keys[: index + 1], value, "map[string]interface{}", kind())]
        if key not in value:
            return None, []
        value = value[key]
    if type(value) is not kind:
        return None, [_accessor_error(path, keys, value, wanted, kind())]
    return value, []


def _accessor_error(path: str, keys: list[str], value: Any, wanted: str, shown: Any) -> FieldError:
    text = f".{'.'.join(keys)} accessor error: {plain(value)} is of the type {type_name(value)}"
    return field.invalid(path, shown, f"{text}, expected {wanted}")
