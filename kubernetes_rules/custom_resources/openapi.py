"""The rules of schemas beyond structure: ValidateCustomResourceDefinitionOpenAPISchema.

Source: k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation/validation.go. The expressions of
``x-kubernetes-validations`` are not compiled here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kubernetes_rules.custom_resources.field_paths import PathInvalid, resolved
from kubernetes_rules.custom_resources.schema import Raw, parse_schema
from kubernetes_rules.custom_resources.structural import is_set, unsupported
from kubernetes_rules.validation import field
from kubernetes_rules.validation.field import FieldError

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_META_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a schema lies: its path, whether within metadata, and why defaults are forbidden there, if so."""

    path: str
    inside_meta: bool = False
    no_default_reason: str = ""

    def below(self, step: str) -> _Place:
        return replace(self, path=f"{self.path}.{step}")


def openapi_errors(schema: Raw, path: str) -> list[FieldError]:
    """The errors of a schema and of all schemas below it."""
    return _errors(schema, _Place(path), is_root=True)


def _errors(schema: Raw, place: _Place, *, is_root: bool = False) -> list[FieldError]:
    path = place.path
    errors = _keyword_errors(schema, place)
    more = schema.get("additionalProperties")
    if more is not None:
        if schema.get("properties") and more is not True:
            text = "additionalProperties and properties are mutual exclusive"
            errors.append(field.forbidden(f"{path}.additionalProperties", text))
        if isinstance(more, dict):
            below = place.below("additionalProperties")
            if place.inside_meta:
                reason = "inside additionalProperties applying to object metadata"
                below = replace(below, no_default_reason=reason)
            errors += _errors(more, below)
    for name, entry in (schema.get("properties") or {}).items():
        below = place.below(f"properties[{name}]")
        if (is_root or schema.get("x-kubernetes-embedded-resource")) and name in _META_FIELDS:
            below = replace(below, inside_meta=True)
            if is_root:
                below = replace(below, no_default_reason=f"in top-level {name}")
        errors += _errors(entry, below)
    for step, entry in _other_children(schema):
        errors += _errors(entry, place.below(step))
    errors += _map_type_errors(schema, path)
    errors += _list_type_errors(schema, path)
    errors += _list_map_errors(schema, path)
    return errors + _rule_errors(schema, f"{path}.x-kubernetes-validations")


def _other_children(schema: Raw) -> list[tuple[str, Raw]]:
    """The schemas below one that are in no property, with the steps of their paths."""
    found = [("not", schema["not"])] if schema.get("not") is not None else []
    for keyword in ("allOf", "oneOf", "anyOf"):
        found += [(f"{keyword}[{index}]", entry) for index, entry in enumerate(schema.get(keyword) or [])]
    for keyword in ("definitions", "dependencies"):
        entries = (schema.get(keyword) or {}).items()
        found += [(f"{keyword}[{name}]", entry) for name, entry in entries if isinstance(entry, dict)]
    items = schema.get("items")
    if isinstance(items, list):
        found += [(f"items[{index}]", entry) for index, entry in enumerate(items)]
    elif items is not None:
        found.append(("items", items))
    return found


def _keyword_errors(schema: Raw, place: _Place) -> list[FieldError]:
    path = place.path
    errors: list[FieldError] = []
    kind = schema.get("type") or ""
    if kind and kind not in _TYPES:
        errors.append(field.not_supported(f"{path}.type", kind, _TYPES))
    if schema.get("default") is not None and place.no_default_reason:
        errors.append(field.forbidden(f"{path}.default", f"must not be set {place.no_default_reason}"))
    for keyword in _UNSUPPORTED:
        value = schema.get(keyword)
        if is_set(value) or (value is not None and keyword in ("additionalItems", "dependencies", "$ref")):
            errors.append(field.forbidden(f"{path}.{keyword}", f"{keyword} is not supported"))
    if kind == "null":
        text = "type cannot be set to null, use nullable as an alternative"
        errors.append(field.forbidden(f"{path}.type", text))
    if isinstance(schema.get("items"), list) and schema["items"]:
        text = "items must be a schema object and not an array"
        errors.append(field.forbidden(f"{path}.items", text))
    if place.inside_meta and schema.get("x-kubernetes-embedded-resource"):
        text = "must not be used inside of resource meta"
        errors.append(field.forbidden(f"{path}.x-kubernetes-embedded-resource", text))
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        errors.append(field.forbidden(f"{path}.uniqueItems", text))
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        here = f"{path}.x-kubernetes-preserve-unknown-fields"
        errors.append(field.invalid(here, value=False, detail="must be true or undefined"))
    return errors


def _wrong_type(schema: Raw, path: str, wanted: str, keyword: str) -> list[FieldError]:
    kind, text = schema.get("type") or "", f"must be {wanted} if {keyword} is specified"
    if kind == wanted:
        return []
    return [field.invalid(f"{path}.type", kind, text) if kind else field.required(f"{path}.type", text)]


def _map_type_errors(schema: Raw, path: str) -> list[FieldError]:
    keyword = "x-kubernetes-map-type"
    map_type = schema.get(keyword)
    if map_type is None:
        return []
    errors = _wrong_type(schema, path, "object", keyword)
    if map_type not in ("atomic", "granular"):
        errors.append(field.not_supported(f"{path}.{keyword}", map_type, ("atomic", "granular")))
    return errors


def _list_type_errors(schema: Raw, path: str) -> list[FieldError]:
    keyword = "x-kubernetes-list-type"
    list_type, keys = schema.get(keyword), schema.get("x-kubernetes-list-map-keys")
    here = f"{path}.{keyword}"
    errors: list[FieldError] = []
    if list_type is not None:
        errors += _wrong_type(schema, path, "array", keyword)
        if not errors and list_type == "set":
            errors += _set_item_errors(schema, path)
        if list_type not in ("atomic", "set", "map"):
            errors.append(field.not_supported(here, list_type, ("atomic", "set", "map")))
    text = "must be map if x-kubernetes-list-map-keys is non-empty"
    if keys and list_type is None:
        errors.append(field.required(here, text))
    elif keys and list_type != "map":
        errors.append(field.invalid(here, list_type, text))
    return errors


def _set_item_errors(schema: Raw, path: str) -> list[FieldError]:
    """The entries of a set must be compared as a whole."""
    items = schema.get("items")
    if not isinstance(items, dict):
        return []
    list_type, map_type = items.get("x-kubernetes-list-type"), items.get("x-kubernetes-map-type")
    if items.get("type") == "array" and list_type not in (None, "atomic"):
        keyword = "x-kubernetes-list-type"
    elif items.get("type") == "object" and map_type != "atomic":
        keyword = "x-kubernetes-map-type"
    else:
        return []
    text = "must be atomic as item of a list with x-kubernetes-list-type=set"
    # Kubernetes shows the type of the list in both cases.
    return [field.invalid(f"{path}.items.{keyword}", list_type, text)]


def _list_map_errors(schema: Raw, path: str) -> list[FieldError]:
    list_type, items = schema.get("x-kubernetes-list-type"), schema.get("items")
    errors: list[FieldError] = []
    if list_type == "map":
        if not schema.get("x-kubernetes-list-map-keys"):
            text = "must not be empty if x-kubernetes-list-type is map"
            errors.append(field.required(f"{path}.x-kubernetes-list-map-keys", text))
        if items is None:
            text = "must have a schema if x-kubernetes-list-type is map"
            errors.append(field.required(f"{path}.items", text))
        elif not isinstance(items, dict):
            text = "must only have a single schema if x-kubernetes-list-type is map"
            errors.append(field.without_value(f"{path}.items", text))
        elif items.get("type") != "object":
            text = "must be object if parent array's x-kubernetes-list-type is map"
            errors.append(field.invalid(f"{path}.items.type", items.get("type") or "", text))
        else:
            errors += _key_errors(schema, items, path)
    if list_type in ("map", "set") and isinstance(items, dict):
        if items.get("nullable"):
            text = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
            errors.append(field.forbidden(f"{path}.items.nullable", text))
        if list_type == "map":
            errors += _key_presence_errors(schema, items, path)
    return errors


def _key_errors(schema: Raw, items: Raw, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    keys = schema.get("x-kubernetes-list-map-keys") or []
    here = f"{path}.x-kubernetes-list-map-keys"
    for index, key in enumerate(keys):
        entry = (items.get("properties") or {}).get(key)
        if entry is None:
            errors.append(field.invalid(here, keys, "entries must all be names of item properties"))
        elif entry.get("type") in ("array", "object"):
            text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            # Kubernetes shows the type of the item, not that of the key.
            errors.append(field.invalid(f"{path}.items.properties[{key}].type", "object", text))
        if key in keys[:index]:
            errors.append(field.invalid(here, keys, "must not contain duplicate entries"))
    return errors


def _key_presence_errors(schema: Raw, items: Raw, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for key in schema.get("x-kubernetes-list-map-keys") or []:
        entry = (items.get("properties") or {}).get(key)
        if entry is None:
            continue
        here = f"{path}.items.properties[{key}]"
        about = "this property is in x-kubernetes-list-map-keys, so it"
        if key not in (items.get("required") or []) and entry.get("default") is None:
            text = f"{about} must have a default or be a required property"
            errors.append(field.required(f"{here}.default", text))
        if entry.get("nullable"):
            errors.append(field.forbidden(f"{here}.nullable", f"{about} cannot be nullable"))
    return errors


def _rule_errors(schema: Raw, path: str) -> list[FieldError]:
    """The errors of rules apart from their expressions."""
    errors: list[FieldError] = []
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or []):
        here = f"{path}[{index}]"
        errors += _rule_message_errors(rule, here)
        reason = rule.get("reason")
        if reason is not None and reason not in _REASONS:
            errors.append(field.not_supported(f"{here}.reason", reason, _REASONS))
        shown: Any = rule.get("fieldPath") or ""
        if shown and not shown.strip():
            errors.append(field.invalid(f"{here}.fieldPath", shown, "must be non-empty if specified"))
        if _has_newline(shown):
            errors.append(field.invalid(f"{here}.fieldPath", shown, "must not contain line breaks"))
        if shown and unsupported(schema) is None:
            try:
                resolved(shown, parse_schema(schema))
            except PathInvalid:
                errors.append(field.invalid(f"{here}.fieldPath", shown, "must be a valid path"))
    return errors


def _rule_message_errors(rule: Raw, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    text, message = rule.get("rule") or "", rule.get("message") or ""
    expression = rule.get("messageExpression") or ""
    if not text.strip():
        errors.append(field.required(f"{path}.rule", "rule is not specified"))
    elif message and not message.strip():
        errors.append(field.invalid(f"{path}.message", message, "must be non-empty if specified"))
    elif _has_newline(message.strip()):
        errors.append(field.invalid(f"{path}.message", message, "must not contain line breaks"))
    elif _has_newline(text.strip()) and not message.strip():
        detail = "message must be specified if rule contains line breaks"
        errors.append(field.required(f"{path}.message", detail))
    if expression and not expression.strip():
        detail = "messageExpression must be non-empty if specified"
        errors.append(field.required(f"{path}.messageExpression", detail))
    return errors


def _has_newline(text: str) -> bool:
    return "\n" in text or "\r" in text
