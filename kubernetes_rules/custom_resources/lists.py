"""Finds duplicates in lists that are sets or maps (pkg/apiserver/schema/listtype)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubernetes_rules.custom_resources.schema import Schema
from kubernetes_rules.printed import json_text, with_sorted_keys
from kubernetes_rules.validation import field
from kubernetes_rules.validation.field import FieldError


def list_errors(schema: Schema, value: Any, path: str = "") -> list[FieldError]:
    """The errors of all lists below a value."""
    errors: list[FieldError] = []
    if isinstance(value, dict):
        for key, entry in value.items():
            if schema.values is not None:
                errors += list_errors(schema.values, entry, f"{path}[{key}]")
            known = schema.properties.get(key)
            if known is not None:
                errors += list_errors(known, entry, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        if schema.x_list_type == "set":
            errors += _set_errors(value, value, path)
        elif schema.x_list_type == "map":
            errors += _map_errors(schema, value, path)
        if schema.items is not None:
            for index, entry in enumerate(value):
                errors += list_errors(schema.items, entry, f"{path}[{index}]")
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
