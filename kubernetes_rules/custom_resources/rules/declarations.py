"""Declares the values of a structural schema for validation rules.

Source: k8s.io/apiserver/pkg/cel/common/schemas.go (SchemaDeclType) and apiextensions' schema/cel/model.
"""

from __future__ import annotations

from dataclasses import replace

from kubernetes_rules.cel import types
from kubernetes_rules.cel.estimation.declared import Declared, escaped
from kubernetes_rules.cel.types import Type
from kubernetes_rules.custom_resources.schema import Schema

REQUEST_BYTES = 3 * 1024 * 1024
"""The size of the largest request, from which sizes without a limit are estimated."""
SELF_TYPE = "selfType"
_TEXT_BYTES = REQUEST_BYTES - 2
_NAME_CHARACTERS = 253
_TIMES = {
    "duration": (types.DURATION, 32, 3),
    "date": (types.TIMESTAMP, 12, 12),
    "date-time": (types.TIMESTAMP, 32, 21),
}
"""The formats of times: their types, the most characters, and the least bytes of JSON."""
_SCALARS = {
    "boolean": Declared(types.BOOL, least_bytes=4),
    "number": Declared(types.DOUBLE, least_bytes=1),
    "integer": Declared(types.INT, least_bytes=1),
}
_STRING = Declared(types.STRING)


def with_metadata(schema: Schema) -> Schema:
    """The schema of a resource, with ``apiVersion``, ``kind`` and the names in ``metadata`` for rules."""
    metadata = schema.properties.get("metadata", Schema())
    texts = [schema.properties.get(name) for name in ("kind", "apiVersion")]
    texts += [metadata.properties.get(name) for name in ("name", "generateName")]
    if metadata.type == "object" and all(one is not None and one.type == "string" for one in texts):
        return schema
    text = Schema(type="string")
    limits = {"name": _NAME_CHARACTERS, "generateName": _NAME_CHARACTERS - 1}
    named = {name: _limited(metadata.properties.get(name), most) for name, most in limits.items()}
    added = {"kind": text, "apiVersion": text, "metadata": Schema(type="object", properties=named)}
    return replace(schema, properties={**schema.properties, **added})


def _limited(schema: Schema | None, most: int) -> Schema:
    limit = None if schema is None else schema.max_length
    return Schema(type="string", max_length=most if limit is None else min(limit, most))


def declare(schema: Schema, *, is_resource: bool, name: str = SELF_TYPE) -> Declared | None:
    """The declaration of a value; None for one that rules cannot see. ``name`` is that of its type of object.

    ``is_resource``: the value is a resource, at the root or embedded.
    """
    if schema.x_int_or_string:
        most = _TEXT_BYTES if schema.max_length is None else max(schema.max_length, 0) * 4
        return Declared(types.DYN, most, 1)
    if is_resource:
        schema = with_metadata(schema)
    match schema.type:
        case "array":
            return _array(schema, name)
        case "object":
            return _object(schema, name) if schema.values is None else _map(schema, schema.values, name)
        case "string":
            return _text(schema)
    return _SCALARS.get(schema.type)


def _array(schema: Schema, name: str) -> Declared | None:
    if schema.items is None:
        return None
    items = declare(schema.items, is_resource=schema.items.x_embedded_resource, name=f"{name}.@idx")
    if items is None:
        return None
    most = (REQUEST_BYTES - 2) // (items.least_bytes + 1)
    return Declared(
        types.list_of(items.kind),
        most if schema.max_items is None else max(schema.max_items, 0),
        element=items,
        name=name,
    )


def _map(schema: Schema, values: Schema, name: str) -> Declared | None:
    value = declare(values, is_resource=values.x_embedded_resource, name=f"{name}.@elem")
    if value is None:
        return None
    most = (REQUEST_BYTES - 2) // (value.least_bytes + 6)
    limit = schema.max_properties
    kind = types.map_of(types.STRING, value.kind)
    return Declared(kind, most if limit is None else max(limit, 0), key=_STRING, element=value, name=name)


def _object(schema: Schema, name: str) -> Declared:
    fields: dict[str, Declared] = {}
    least = 2
    for key, part in schema.properties.items():
        place = escaped(key)
        found = declare(part, is_resource=part.x_embedded_resource, name=f"{name}.{place}")
        if found is None:
            continue
        if place is not None:
            fields[place] = found
        if key in schema.required and part.default is None:
            least += len(key.encode()) + found.least_bytes + 4
    return Declared(Type(name), least_bytes=least, fields=fields, name=name, is_object=True)


def _text(schema: Schema) -> Declared:
    limit = None if schema.max_length is None else max(schema.max_length, 0)
    if schema.format in _TIMES:
        kind, most, least = _TIMES[schema.format]
        return Declared(kind, most, least)
    if schema.format == "byte":
        return Declared(types.BYTES, _TEXT_BYTES if limit is None else limit)
    if limit is not None:
        return Declared(types.STRING, limit * 4)
    if schema.enum:
        texts = [len(value.encode()) for value in schema.enum if isinstance(value, str)]
        return Declared(types.STRING, max(texts, default=0))
    return Declared(types.STRING, _TEXT_BYTES)
