"""Whether a schema is structural (pkg/apiserver/schema: convert.go, validation.go, complete.go)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubernetes_rules.cel.library_regex import compiled
from kubernetes_rules.cel.types import CelError
from kubernetes_rules.custom_resources.schema import Raw
from kubernetes_rules.validation import field
from kubernetes_rules.validation.field import FieldError

_UNSUPPORTED = {
    "id": "id",
    "$schema": "schema",
    "$ref": "$ref",
    "patternProperties": "patternProperties",
    "dependencies": "dependencies",
    "additionalItems": "additionalItems",
    "definitions": "definitions",
}
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_PLACES = {"root": "at the root", "item": "for specified array items", "field": "for specified object fields"}
_FORBIDDEN_NESTED = {
    "type": "empty",
    "default": "undefined",
    "title": "empty",
    "description": "empty",
    "nullable": "false",
    "x-kubernetes-preserve-unknown-fields": "false",
    "x-kubernetes-embedded-resource": "false",
    "x-kubernetes-int-or-string": "false",
    "x-kubernetes-list-map-keys": "empty",
    "x-kubernetes-list-type": "undefined",
    "x-kubernetes-map-type": "undefined",
    "x-kubernetes-validations": "empty",
}
POINTERS = frozenset(
    {"default", "not", "items", "$ref", "additionalProperties", "additionalItems", "example"}
    | {f"x-kubernetes-{name}" for name in ("preserve-unknown-fields", "list-type", "map-type")}
)
"""Keywords that are set even if they are false or empty."""
_JUNCTORS = ("allOf", "anyOf", "oneOf")


def is_set(value: Any) -> bool:
    """Whether a keyword that is no pointer in Go is set: Go takes no difference between absent and empty."""
    if isinstance(value, bool):
        return value
    return value is not None and value not in ("", [], {})


def _is_present(keyword: str, value: Any) -> bool:
    """Whether a keyword is set, where pointers are set even to something empty."""
    return is_set(value) or (value is not None and keyword in POINTERS and keyword != "$ref")


def children(schema: Raw) -> Iterator[Raw]:
    """The schemas right below one, wherever they are."""
    items = schema.get("items")
    yield from items if isinstance(items, list) else [items] if items else []
    for keyword in _JUNCTORS:
        yield from schema.get(keyword) or []
    for keyword in ("not", "additionalProperties", "additionalItems"):
        if isinstance(schema.get(keyword), dict):
            yield schema[keyword]
    for keyword in ("properties", "patternProperties", "definitions", "dependencies"):
        yield from (entry for entry in (schema.get(keyword) or {}).values() if isinstance(entry, dict))


def unsupported(schema: Raw) -> str | None:
    """Why a schema cannot be read as a structural one, if so."""
    for keyword, name in _UNSUPPORTED.items():
        value = schema.get(keyword)
        if is_set(value) or (keyword == "additionalItems" and value is False):
            return f"OpenAPIV3Schema '{name}' is not supported"
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        return "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
    if isinstance(schema.get("items"), list) and schema["items"]:
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    return next((reason for child in children(schema) if (reason := unsupported(child))), None)


def structural_errors(schema: Raw, path: str) -> list[FieldError]:
    """The errors of a schema that can be read but is not structural."""
    return _node_errors(schema, "root", path) + _completeness_errors(schema, schema, path, path)


def _node_errors(schema: Raw, level: str, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    properties, more = schema.get("properties") or {}, schema.get("additionalProperties")
    items = schema.get("items")
    if schema.get("type") == "array" and items is None:
        errors.append(field.required(f"{path}.items", "must be specified"))
    if items is not None:
        errors += _node_errors(items, "item", f"{path}.items")
    for name, entry in properties.items():
        errors += _node_errors(entry, "field", f"{path}.properties[{name}]")
    if more is not None and level == "root":
        errors.append(field.forbidden(f"{path}.additionalProperties", "must not be used at the root"))
    if isinstance(more, dict):
        errors += _node_errors(more, "field", f"{path}.additionalProperties")
    errors += _extension_errors(schema, path)
    errors += _value_errors(schema, path, may_be_int_or_string=True)
    errors += _type_errors(schema, level, path)
    if "metadata" in properties:
        checked = level == "root" or bool(schema.get("x-kubernetes-embedded-resource"))
        errors += _metadata_errors(properties["metadata"], level, checked, f"{path}.properties[metadata]")
    return errors


def _extension_errors(schema: Raw, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    embedded = schema.get("x-kubernetes-embedded-resource")
    preserves = schema.get("x-kubernetes-preserve-unknown-fields")
    if schema.get("x-kubernetes-int-or-string"):
        text = "must be false if x-kubernetes-int-or-string is true"
        if preserves:
            errors.append(field.invalid(f"{path}.x-kubernetes-preserve-unknown-fields", preserves, text))
        if embedded:
            errors.append(field.invalid(f"{path}.x-kubernetes-embedded-resource", embedded, text))
    if embedded:
        if schema.get("additionalProperties") is not None:
            text = "must not be used if x-kubernetes-embedded-resource is set"
            errors.append(field.forbidden(f"{path}.additionalProperties", text))
        if not preserves and not schema.get("properties"):
            text = (
                "must not be empty if x-kubernetes-embedded-resource is true without "
                "x-kubernetes-preserve-unknown-fields"
            )
            errors.append(field.required(f"{path}.properties", text))
    return errors


def _type_errors(schema: Raw, level: str, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    here, kind = f"{path}.type", schema.get("type") or ""
    embedded = schema.get("x-kubernetes-embedded-resource")
    if embedded and kind != "object":
        text = "must be object if x-kubernetes-embedded-resource is true"
        errors.append(field.invalid(here, kind, text) if kind else field.required(here, text))
    elif not kind and not any(
        schema.get(f"x-kubernetes-{name}") for name in ("int-or-string", "preserve-unknown-fields")
    ):
        errors.append(field.required(here, f"must not be empty {_PLACES[level]}"))
    if level == "root" and kind and kind != "object":
        errors.append(field.invalid(here, kind, "must be object at the root"))
    for name in ("kind", "apiVersion"):
        entry = (schema.get("properties") or {}).get(name)
        if entry is not None and (level == "root" or embedded) and entry.get("type") != "string":
            where = f"{path}.properties[{name}].type"
            errors.append(field.invalid(where, entry.get("type") or "", "must be string"))
    return errors


def _metadata_errors(schema: Raw, level: str, checked: bool, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if checked and schema.get("type") != "object":
        errors.append(field.invalid(f"{path}.type", schema.get("type") or "", "must be object"))
    if level == "root":
        ignored = {"type", "default"}
        if set(schema.get("properties") or ()) <= {"name", "generateName"}:
            ignored.add("properties")
        if any(_is_present(keyword, value) for keyword, value in schema.items() if keyword not in ignored):
            text = (
                "must not specify anything other than name and generateName, but metadata is implicitly "
                "specified"
            )
            errors.append(field.forbidden(path, text))
    return errors


def _value_errors(schema: Raw, path: str, *, may_be_int_or_string: bool) -> list[FieldError]:
    """The errors of keywords that check values; two types in anyOf may stand for an integer or string."""
    errors: list[FieldError] = []
    skips_first = False
    if may_be_int_or_string:
        all_of = schema.get("allOf") or [{}]
        skips_first = _bare(all_of[0].get("anyOf")) == _INT_OR_STRING
    skips_any_of = may_be_int_or_string and _bare(schema.get("anyOf")) == _INT_OR_STRING
    for keyword in _JUNCTORS:
        for index, entry in enumerate(schema.get(keyword) or []):
            if keyword == "anyOf" and skips_any_of:
                continue
            here = f"{path}.{keyword}[{index}]"
            first = keyword == "allOf" and index == 0
            errors += _nested_errors(entry, here, skips_any_of=first and skips_first)
    if schema.get("not") is not None:
        errors += _nested_errors(schema["not"], f"{path}.not")
    return errors + _pattern_errors(schema.get("pattern") or "", f"{path}.pattern")


def _pattern_errors(pattern: str, path: str) -> list[FieldError]:
    try:
        compiled(pattern)
    except CelError as error:
        text = f"must be a valid regular expression, but isn't: error parsing regexp: {error}"
        return [field.invalid(path, pattern, text)]
    return []


def _bare(entries: Any) -> Any:
    """Nested schemas without the keywords that are not set."""
    return [
        {
            key: value
            for key, value in entry.items()
            # Without additionalProperties nothing else is allowed either.
            if (_is_present(key, value) or key == "properties")
            and (key, value) != ("additionalProperties", False)
        }
        for entry in entries or []
    ]


def _nested_errors(schema: Raw, path: str, *, skips_any_of: bool = False) -> list[FieldError]:
    """The errors of a schema below a logic junctor, which may only check values."""
    shown = {key: value for key, value in schema.items() if key != "anyOf"} if skips_any_of else schema
    errors = _value_errors(shown, path, may_be_int_or_string=False)
    if schema.get("items") is not None:
        errors += _nested_errors(schema["items"], f"{path}.items")
    for name, entry in (schema.get("properties") or {}).items():
        errors += _nested_errors(entry, f"{path}.properties[{name}]")
    if schema.get("additionalProperties") not in (None, False):
        text = "must be undefined to be structural"
        errors.append(field.forbidden(f"{path}.additionalProperties", text))
    for keyword, wanted in _FORBIDDEN_NESTED.items():
        # An empty list type is set, since it is a pointer in Go.
        value = schema.get(keyword)
        if value is not None if wanted == "undefined" else is_set(value):
            errors.append(field.forbidden(f"{path}.{keyword}", f"must be {wanted} to be structural"))
    if "metadata" in (schema.get("properties") or {}):
        text = "must not be specified in a nested context"
        errors.append(field.forbidden(f"{path}.properties[metadata]", text))
    return errors


def _completeness_errors(checks: Raw, schema: Raw | None, path: str, checks_path: str) -> list[FieldError]:
    """The errors of checks below logic junctors for which the structure has no place."""
    errors: list[FieldError] = []
    nested = [(checks["not"], f"{checks_path}.not")] if checks.get("not") is not None else []
    for keyword in _JUNCTORS:
        nested += [
            (entry, f"{checks_path}.{keyword}[{index}]")
            for index, entry in enumerate(checks.get(keyword) or [])
        ]
    for entry, entry_path in nested:
        errors += _nested_completeness_errors(entry, schema, path, entry_path)
    return errors


def _nested_completeness_errors(
    checks: Raw, schema: Raw | None, path: str, checks_path: str
) -> list[FieldError]:
    if schema is None:
        return [field.required(path, f"because it is defined in {checks_path}")]
    errors = _completeness_errors(checks, schema, path, checks_path)
    if checks.get("items") is not None:
        errors += _nested_completeness_errors(
            checks["items"], schema.get("items"), f"{path}.items", f"{checks_path}.items"
        )
    for name, entry in (checks.get("properties") or {}).items():
        below = (schema.get("properties") or {}).get(name)
        here = f".properties[{name}]"
        errors += _nested_completeness_errors(entry, below, f"{path}{here}", f"{checks_path}{here}")
    return errors
