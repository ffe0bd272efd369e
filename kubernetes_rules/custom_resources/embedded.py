"""The type and metadata of embedded resources (pkg/apiserver/schema/objectmeta)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubernetes_rules.cel.times import parse_timestamp, timestamp
from kubernetes_rules.cel.types import CelError
from kubernetes_rules.custom_resources.schema import Schema
from kubernetes_rules.printed import quoted, with_sorted_keys
from kubernetes_rules.validation import field, names
from kubernetes_rules.validation.field import FieldError
from kubernetes_rules.validation.metadata import metadata_errors

Object = dict[str, Any]

_OWNER = {
    "apiVersion": str, "kind": str, "name": str, "uid": str, "controller": bool, "blockOwnerDeletion": bool,
}  # fmt: skip
_MANAGED = {
    "manager": str, "operation": str, "apiVersion": str, "time": str, "fieldsType": str, "fieldsV1": dict,
    "subresource": str,
}  # fmt: skip
_METADATA: dict[str, Any] = {
    "name": str, "generateName": str, "namespace": str, "selfLink": str, "uid": str, "resourceVersion": str,
    "generation": int, "creationTimestamp": str, "deletionTimestamp": str, "deletionGracePeriodSeconds": int,
    "labels": {"*": str}, "annotations": {"*": str}, "ownerReferences": [_OWNER], "finalizers": [str],
    "managedFields": [_MANAGED],
}  # fmt: skip
"""The fields of ObjectMeta: a Python type, or a list of one, or a map of ``*`` or of fields to types."""
_KINDS = {str: "string", int: "int64", bool: "bool"}
_POINTERS = frozenset({"controller", "blockOwnerDeletion", "deletionGracePeriodSeconds", "fieldsV1"})
_NEVER_OMITTED = frozenset({"apiVersion", "kind", "name", "uid"})


class NotObjectMeta(Exception):
    """The metadata of an embedded resource cannot be read; ``error`` says where."""

    def __init__(self, error: FieldError) -> None:
        """Keep the error of the field."""
        super().__init__(str(error))
        self.error = error


def coerced(schema: Schema, value: Any, path: str = "") -> tuple[Any, list[str]]:
    """A value whose embedded resources have valid ObjectMeta, and the paths of unknown fields in these.

    Raises NotObjectMeta if a value has a wrong type.
    """
    unknown: list[str] = []
    return _coerced(value, schema, path, unknown), unknown


def _coerced(value: Any, schema: Schema | None, path: str, unknown: list[str]) -> Any:
    if schema is None:
        return value
    if isinstance(value, list):
        return [
            _coerced(entry, schema.items, f"{path}[{index}]", unknown) for index, entry in enumerate(value)
        ]
    if not isinstance(value, dict):
        return value
    result: Object = {}
    for key, entry in value.items():
        here = f"{path}.{key}" if path else key
        if schema.x_embedded_resource and key in ("apiVersion", "kind") and not isinstance(entry, str):
            raise NotObjectMeta(field.invalid(here, with_sorted_keys(entry), "must be a string"))
        is_meta = schema.x_embedded_resource and key == "metadata"
        read = _object_meta(entry, here, unknown) if is_meta else entry
        known = schema.properties.get(key)
        below = here if known is not None else f"{path}[{key}]"
        result[key] = _coerced(read, known or schema.values, below, unknown)
    return result


def _object_meta(value: Any, path: str, unknown: list[str]) -> Object:
    """The metadata as ObjectMeta is written: without unknown fields and without empty values."""
    reader = _Reader(value, path, unknown)
    result: Object = reader.read(value, _METADATA, "") or {}
    return result


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the metadata ``whole`` at a path as Go would, and collects the paths of unknown fields."""

    whole: Any
    path: str
    unknown: list[str]

    def read(self, value: Any, wanted: Any, name: str) -> Any:
        """A value as Go would write it again; ``name`` is the path within the metadata."""
        if value is None:
            return None
        if isinstance(wanted, list):
            if not isinstance(value, list):
                raise self._wrong(value, name, "list")
            entries = (self.read(entry, wanted[0], f"{name}[{index}]") for index, entry in enumerate(value))
            empty = "" if wanted[0] is str else {}
            return [empty if entry is None else entry for entry in entries]
        if isinstance(wanted, dict):
            if not isinstance(value, dict):
                raise self._wrong(value, name, "map")
            return self._map(value, wanted, f"{name}." if name else "")
        if type(value) is not wanted:
            raise self._wrong(value, name, _KINDS.get(wanted, "map"))
        return self._time(value) if name.endswith(("Timestamp", ".time")) else value

    def _map(self, value: Object, wanted: Mapping[str, Any], prefix: str) -> Object:
        result: Object = dict.fromkeys(sorted(_NEVER_OMITTED), "") if wanted is _OWNER else {}
        for key, entry in value.items():
            if "*" in wanted:
                result[key] = self.read(entry, wanted["*"], f"{prefix}{key}") or ""
            elif key not in wanted:
                self.unknown.append(f"{self.path}.{prefix}{key}")
            else:
                found = self.read(entry, wanted[key], f"{prefix}{key}")
                if found or (found is not None and key in _POINTERS):
                    result[key] = found
        return result

    def _wrong(self, value: Any, name: str, wanted: str) -> NotObjectMeta:
        kinds = {str: "string", bool: "bool", list: "array", dict: "object"}
        kind = kinds.get(type(value), "number")
        where = f"struct field ObjectMeta.{name}" if name else "value"
        return self._refused(f"json: cannot unmarshal {kind} into Go {where} of type {wanted}")

    def _refused(self, text: str) -> NotObjectMeta:
        return NotObjectMeta(field.invalid(self.path, with_sorted_keys(self.whole), text))

    def _time(self, text: str) -> str:
        """The time as Kubernetes writes it again, in UTC and whole seconds."""
        try:
            moment = parse_timestamp(text)
        except CelError:
            layout = '"2006-01-02T15:04:05Z07:00"'
            raise self._refused(f"parsing time {quoted(quoted(text))} as {layout}") from None
        return str(timestamp(moment.nanoseconds // 10**9 * 10**9))


def embedded_errors(schema: Schema | None, value: Any, path: str = "") -> list[FieldError]:
    """The errors of the embedded resources below a value."""
    errors: list[FieldError] = []
    if schema is None:
        return errors
    if isinstance(value, dict):
        if schema.x_embedded_resource:
            errors += _resource_errors(value, f"{path}." if path else "")
        for key, entry in value.items():
            known = schema.properties.get(key)
            here = f"{path}[{key}]" if known is None else f"{path}.{key}" if path else key
            errors += embedded_errors(known or schema.values, entry, here)
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            errors += embedded_errors(schema.items, entry, f"{path}[{index}]")
    return errors


def _resource_errors(value: Object, prefix: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for key in ("apiVersion", "kind"):
        here = f"{prefix}{key}"
        if key not in value:
            errors.append(field.required(here))
        elif not isinstance(value[key], str):
            errors.append(field.invalid(here, with_sorted_keys(value[key]), "must be a string"))
        elif not value[key]:
            errors.append(field.invalid(here, "", "must not be empty"))
    version, kind = value.get("apiVersion"), value.get("kind")
    if isinstance(version, str) and version.count("/") > 1:
        text = f"unexpected GroupVersion string: {version}"
        errors.append(field.invalid(f"{prefix}apiVersion", version, text))
    wrong = names.dns_label_1035(kind.lower()) if isinstance(kind, str) and kind else []
    if wrong:
        text = f"may have mixed case, but should otherwise match: {','.join(wrong)}"
        errors.append(field.invalid(f"{prefix}kind", kind, text))
    if "metadata" in value:
        errors += _metadata_errors(value["metadata"], f"{prefix}metadata")
    return errors


def _metadata_errors(metadata: Any, path: str) -> list[FieldError]:
    try:
        _object_meta(metadata, path, [])
    except NotObjectMeta as refused:
        return [refused.error]
    read = dict(metadata or {})
    read["name"] = read.get("name") or "fakename"
    errors = metadata_errors(
        read, namespaced=bool(read.get("namespace")), path=path, name_rule=names.path_segment
    )
    # Only kinds of Kubernetes itself restrict finalizers further than to qualified names.
    return [error for error in errors if not error.field.startswith(f"{path}.finalizers[")]
