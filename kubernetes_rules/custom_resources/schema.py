"""A structural schema: ``openAPIV3Schema`` of one version of a CustomResourceDefinition, parsed once.

Source: k8s.io/apiextensions-apiserver/pkg/apiserver/schema (structural.go, convert.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Raw = Mapping[str, Any]
"""A schema as a CustomResourceDefinition contains it (apiextensions.k8s.io/v1 JSONSchemaProps)."""


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """One node of a schema; the fields have the names of the keywords, ``x_`` stands for ``x-kubernetes-``.

    Absent texts are empty, absent limits and ``default`` are None. Nodes below ``all_of``, ``any_of``,
    ``one_of`` and ``not_`` only check values: they have no default and no ``x-kubernetes-`` keyword.
    ``uniqueItems`` is missing, since no definition may set it. Two nodes are equal only if they are the
    same one, so that a node can be the key of a cache.
    """

    type: str = ""
    format: str = ""
    nullable: bool = False
    default: Any = None
    properties: Mapping[str, Schema] = field(default_factory=dict)
    additional_properties: Schema | bool | None = None
    items: Schema | None = None
    required: tuple[str, ...] = ()
    enum: tuple[Any, ...] = ()
    maximum: float | None = None
    exclusive_maximum: bool = False
    minimum: float | None = None
    exclusive_minimum: bool = False
    multiple_of: float | None = None
    max_length: int | None = None
    min_length: int | None = None
    pattern: str = ""
    max_items: int | None = None
    min_items: int | None = None
    max_properties: int | None = None
    min_properties: int | None = None
    all_of: tuple[Schema, ...] = ()
    any_of: tuple[Schema, ...] = ()
    one_of: tuple[Schema, ...] = ()
    not_: Schema | None = None
    x_preserve_unknown_fields: bool = False
    x_embedded_resource: bool = False
    x_int_or_string: bool = False
    x_list_type: str | None = None
    x_list_map_keys: tuple[str, ...] = ()
    x_map_type: str | None = None
    x_validations: tuple[Mapping[str, Any], ...] = ()

    def child(self, key: str) -> Schema | None:
        """The schema of the value at ``key`` of an object; None if the schema does not know the key."""
        found = self.properties.get(key)
        return self.values if found is None else found

    @property
    def values(self) -> Schema | None:
        """The schema of the values of a map: ``additionalProperties`` unless that is only true or false."""
        found = self.additional_properties
        return found if isinstance(found, Schema) else None

    @property
    def knows_keys(self) -> bool:
        """Whether ``additionalProperties`` is set to anything: then no key of the object is unknown."""
        return self.additional_properties is not None


def parse_schema(raw: Raw) -> Schema:
    """The schema of a valid CustomResourceDefinition; what ``definition_errors`` refuses may raise."""
    more = raw.get("additionalProperties")
    items = raw.get("items")
    not_ = raw.get("not")
    return Schema(
        type=raw.get("type") or "",
        format=raw.get("format") or "",
        nullable=bool(raw.get("nullable")),
        default=raw.get("default"),
        properties={name: parse_schema(entry) for name, entry in (raw.get("properties") or {}).items()},
        additional_properties=parse_schema(more) if isinstance(more, Mapping) else more,
        items=None if items is None else parse_schema(items),
        required=tuple(raw.get("required") or ()),
        enum=tuple(raw.get("enum") or ()),
        maximum=_number(raw, "maximum"),
        exclusive_maximum=bool(raw.get("exclusiveMaximum")),
        minimum=_number(raw, "minimum"),
        exclusive_minimum=bool(raw.get("exclusiveMinimum")),
        multiple_of=_number(raw, "multipleOf"),
        max_length=raw.get("maxLength"),
        min_length=raw.get("minLength"),
        pattern=raw.get("pattern") or "",
        max_items=raw.get("maxItems"),
        min_items=raw.get("minItems"),
        max_properties=raw.get("maxProperties"),
        min_properties=raw.get("minProperties"),
        all_of=_several(raw, "allOf"),
        any_of=_several(raw, "anyOf"),
        one_of=_several(raw, "oneOf"),
        not_=None if not_ is None else parse_schema(not_),
        x_preserve_unknown_fields=bool(raw.get("x-kubernetes-preserve-unknown-fields")),
        x_embedded_resource=bool(raw.get("x-kubernetes-embedded-resource")),
        x_int_or_string=bool(raw.get("x-kubernetes-int-or-string")),
        x_list_type=raw.get("x-kubernetes-list-type"),
        x_list_map_keys=tuple(raw.get("x-kubernetes-list-map-keys") or ()),
        x_map_type=raw.get("x-kubernetes-map-type"),
        x_validations=tuple(raw.get("x-kubernetes-validations") or ()),
    )


def _number(raw: Raw, key: str) -> float | None:
    value = raw.get(key)
    return None if value is None else float(value)


def _several(raw: Raw, key: str) -> tuple[Schema, ...]:
    return tuple(parse_schema(entry) for entry in raw.get(key) or ())
