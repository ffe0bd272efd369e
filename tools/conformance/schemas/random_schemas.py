"""Random structural schemas, and random values that nearly fit them."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

from kubernetes_rules.custom_resources.objects import without_unknown
from kubernetes_rules.custom_resources.schema import parse_schema

Raw = dict[str, Any]

_DEEPEST = 3
_NAMES = ("a", "b", "c", "d", "x-y", "name", "spec", "metadata", "kind")
FORMATS = (
    "bsonobjectid", "uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid", "uuid3", "uuid4",
    "uuid5", "isbn", "isbn10", "isbn13", "creditcard", "ssn", "hexcolor", "rgbcolor", "byte", "password",
    "date", "duration", "datetime", "date-time", "k8s-short-name", "k8s-long-name", "int32", "unknown",
)  # fmt: skip
TEXTS = (
    "", "a", "b", "ab", "abc", "A", "é", "a-b", "-a", "a.b", "1", "\n", "<&>", '"', "\x7f", "\u00a0",
    "x" * 64, "\U0001f600", "507f1f77bcf86cd799439011", "http://a.b/c?d=e#f", "/a", "a:b", "mailto:a@b",
    "a@b.c", "A B <a@b>", "a@", "a b@c", '"a b"@c.d', "a@b, c@d", "example.com", "a_b.com", "1.2.3.4",
    "01.2.3.4", "1.2.3", "256.1.1.1", "::1", "::1.2.3.4", "1::2::3", "fe80::1%eth0", "00001::",
    "1.2.3.0/24", "01.2.3.0/33", "::/64", "::/129", "1.2.3.4/", "3D:F2:C9:A6:B3:4F", "3D-F2-C9-A6-B3:4F",
    "0000.5e00.5301", "02:00:5e:10:00:00:00:01", "7b81f9de-9337-410d-b95c-e770431cfb4c",
    "7B81F9DE9337310DB95CE770431CFB4C", "7b81f9de-9337-510d-b95c-e770431cfb4c", "3836221195",
    "1-61729-085-8", "3 401 01319 X", "978-3-8362-2119-1", "9784873113685", "9784873113680",
    "4220855426222389", "4220 8554 2622 2389", "4220855426213389", "191-60-2869", "191602869", "#fff",
    "#12345G", "FFFFFF", "rgb(1, 2,3)", "rgb(256,1,1)", "rgb(01,1,1)", "YWJj", "YW=", "YWI=", "2024-02-29",
    "2023-02-29", "2024-1-1", "22 ns", "1h30m", "3 weeks", "1.5h", "5", "-1m", "1 x",
    "2024-02-29T10:11:12Z", "2024-02-29t10:11:12.5+01:00", "2024-02-29 10:11:12Z", "2024-02-29T24:11:12Z",
    "v1", "apps/v1", "a/b/c",
)  # fmt: skip
_PATTERNS = ("^a", "b$", "[0-9]+", "^.{1,2}$", "", r"^\p{L}*$", "(?i)A")
NUMBERS = (0, 1, 2, 3, 5, 10, 97, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**31), -(2**31) - 1, -1, -3)
_FLOATS = (0.5, 1.5, 2.25, -0.5, 1e20, 1e21, 1e-7, 3.4e38, 3.5e38, 0.1, 1.0000000001, -7.5)
_SCALARS: dict[str, tuple[Any, ...]] = {
    "string": TEXTS, "integer": NUMBERS, "number": (*NUMBERS, *_FLOATS), "boolean": (True, False),
}  # fmt: skip
_KEYS = ("a", "b", "c", "d", "x-y", "name", "zz", "metadata", "kind", "apiVersion", "items")
METADATA: tuple[Any, ...] = (
    {}, {"name": "a"}, {"name": "A/b"}, {"labels": {"a": "b"}}, {"labels": {"a": 1}},
    {"labels": {"-": "b c"}}, {"annotations": {"a": None}}, {"foo": 1}, {"name": 5}, None, "text",
    {"generation": -1}, {"generation": 1.5}, {"finalizers": ["a", None]}, {"finalizers": ["kubernetes"]},
    {"ownerReferences": [{"kind": "A", "foo": 1}]},
    {"ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u", "controller": False}]},
    {"creationTimestamp": "2024-02-29T10:11:12.7+01:00"}, {"creationTimestamp": None},
    {"creationTimestamp": "x"}, {"namespace": "a.b"}, {"deletionGracePeriodSeconds": 0},
    {"managedFields": [{"manager": "m", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {}}]},
)  # fmt: skip


def random_schema(rng: Random) -> Raw:
    """The schema of a whole object: ``spec`` and ``status`` with random schemas."""
    properties: Raw = {"spec": _object(rng, _DEEPEST), "status": _any(rng, 1)}
    root: Raw = {"type": "object", "properties": properties}
    if rng.random() < 0.2:
        properties["metadata"] = {
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 2}},
        }
    if rng.random() < 0.2:
        root["required"] = [rng.choice(("spec", "status", "other"))]
    if rng.random() < 0.1:
        root["x-kubernetes-preserve-unknown-fields"] = True
    if rng.random() < 0.2:
        root |= _logic(rng, root)
    return root


def _any(rng: Random, depth: int) -> Raw:
    kinds = [_text, _integer, _number, _boolean, _int_or_string, _preserved]
    if depth > 0:
        kinds += [_object, _object, _map, _list, _list, _embedded]
    schema = rng.choice(kinds)(rng, depth)
    if rng.random() < 0.15:
        schema["nullable"] = True
    if rng.random() < 0.2:
        schema |= _logic(rng, schema)
    if rng.random() < 0.15 and not schema.get("x-kubernetes-embedded-resource"):
        # Kubernetes takes only defaults without unknown fields.
        default = without_unknown(parse_schema(schema), random_value(rng, schema, wrong=0))
        if default is not None:
            schema["default"] = default
    if rng.random() < 0.1:
        schema["enum"] = [random_value(rng, schema, wrong=0.1) for _ in range(rng.randint(1, 3))]
    return schema


def _limits(rng: Random, names: tuple[str, ...], choices: tuple[Any, ...], share: float = 0.3) -> Raw:
    return {name: rng.choice(choices) for name in names if rng.random() < share}


def _text(rng: Random, _: int) -> Raw:
    schema: Raw = {"type": "string"} | _limits(rng, ("minLength", "maxLength"), (0, 1, 2, 3, -1), 0.2)
    if rng.random() < 0.4:
        schema["format"] = rng.choice(FORMATS)
    if rng.random() < 0.2:
        schema["pattern"] = rng.choice(_PATTERNS)
    return schema


def _bounds(rng: Random, numbers: tuple[float, ...]) -> Raw:
    schema = _limits(rng, ("minimum", "maximum", "multipleOf"), numbers)
    return schema | _limits(rng, ("exclusiveMinimum", "exclusiveMaximum"), (True, False))


def _integer(rng: Random, _: int) -> Raw:
    schema: Raw = {"type": "integer"} | _bounds(rng, (0, 1, 2, 3, 5, -1, 2.5, 1e20, 2**31))
    return schema | _limits(rng, ("format",), ("int32", "int64", "date", "float"))


def _number(rng: Random, _: int) -> Raw:
    schema: Raw = {"type": "number"} | _bounds(rng, (0, 1, 0.5, 2.5, -1, 0.1, 1e21, 3))
    return schema | _limits(rng, ("format",), ("float", "double", "int32"))


def _boolean(rng: Random, _: int) -> Raw:
    return {"type": "boolean"} | _limits(rng, ("format",), ("date",), 0.05)


def _int_or_string(rng: Random, depth: int) -> Raw:
    schema: Raw = {"x-kubernetes-int-or-string": True} | _limits(rng, ("maximum",), (1, 5))
    both = [{"type": "integer"}, {"type": "string"}]
    form = rng.random()
    if form < 0.3:
        schema["anyOf"] = both
    elif form < 0.5:
        schema["allOf"] = [{"anyOf": both}, _nested(rng, _text(rng, depth))]
    return schema


def _preserved(rng: Random, _: int) -> Raw:
    schema: Raw = {"x-kubernetes-preserve-unknown-fields": True}
    if rng.random() < 0.5:
        schema["type"] = "object"
        schema["properties"] = {"a": _any(rng, 0)}
    return schema


def _object(rng: Random, depth: int) -> Raw:
    properties = {rng.choice(_NAMES[:6]): _any(rng, depth - 1) for _ in range(rng.randint(0, 4))}
    schema: Raw = {"type": "object", "properties": properties}
    if rng.random() < 0.3:
        schema["required"] = rng.sample(("a", "b", "c", "zz"), rng.randint(1, 2))
    if rng.random() < 0.15:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    return schema | _limits(rng, ("minProperties", "maxProperties"), (0, 1, 2, 3), 0.15)


def _map(rng: Random, depth: int) -> Raw:
    values: Any = _any(rng, depth - 1) if rng.random() < 0.8 else rng.random() < 0.5
    schema: Raw = {"type": "object", "additionalProperties": values}
    return schema | _limits(rng, ("minProperties", "maxProperties"), (0, 1, 2), 0.2)


def _list(rng: Random, depth: int) -> Raw:
    kind = rng.choice((None, None, "atomic", "set", "map", "map"))
    schema: Raw = {"type": "array"} if kind is None else {"type": "array", "x-kubernetes-list-type": kind}
    if kind == "map":
        keys = ["a", "b"][: rng.randint(1, 2)]
        schema["items"] = _object(rng, depth - 1)
        schema["items"]["properties"] |= {
            key: rng.choice((_text, _integer, _boolean))(rng, 0) for key in keys
        }
        schema["items"]["required"] = keys
        schema["x-kubernetes-list-map-keys"] = keys
    elif kind == "set":
        schema["items"] = rng.choice((_text, _integer, _boolean, _number))(rng, 0)
    else:
        schema["items"] = _any(rng, depth - 1)
    return schema | _limits(rng, ("minItems", "maxItems"), (0, 1, 2, 3), 0.15)


def _embedded(rng: Random, depth: int) -> Raw:
    schema: Raw = {"type": "object", "x-kubernetes-embedded-resource": True}
    if rng.random() < 0.7:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    if rng.random() < 0.5 or len(schema) == 2:
        schema["properties"] = {"spec": _any(rng, depth - 1), "kind": {"type": "string", "enum": ["A", "B"]}}
    return schema


def _logic(rng: Random, schema: Raw) -> Raw:
    """A keyword that joins checks which a schema may hold without its structure."""
    keyword = rng.choice(("anyOf", "oneOf", "allOf", "not"))
    if keyword in schema:
        return {}
    nested = [_nested(rng, schema) for _ in range(rng.randint(1, 3))]
    return {keyword: nested[0] if keyword == "not" else nested}


def _nested(rng: Random, schema: Raw) -> Raw:
    """Checks of values of this schema, without keywords that only a structure may have."""
    kind = schema.get("type")
    checks: Raw = {}
    if kind == "object":
        for name, entry in schema.get("properties", {}).items():
            if name != "metadata" and rng.random() < 0.5:
                checks.setdefault("properties", {})[name] = _nested(rng, entry)
        if rng.random() < 0.4:
            checks["required"] = [rng.choice(("a", "b", "spec", "zz"))]
    elif kind == "array" and rng.random() < 0.5:
        checks["items"] = _nested(rng, schema["items"])
    elif kind == "string":
        checks |= {key: value for key, value in _text(rng, 0).items() if key != "type"}
    elif kind in ("integer", "number"):
        checks |= _bounds(rng, (0, 1, 2, 3, 0.5))
    if rng.random() < 0.1:
        checks["enum"] = [random_value(rng, schema, wrong=0.1)]
    if rng.random() < 0.1:
        checks["not"] = _nested(rng, schema)
    return checks


def random_value(rng: Random, schema: Raw, wrong: float) -> Any:
    """A value of a schema; at each place it is of another kind, or has unknown fields, with a probability."""
    if rng.random() < wrong:
        return _junk(rng, 2)
    if rng.random() < wrong / 2:
        return None
    # Entries of an enum may have metadata with unknown fields, which no default may have.
    if schema.get("enum") and (wrong or schema.get("type") in _SCALARS) and rng.random() < 0.7:
        return copy.deepcopy(rng.choice(schema["enum"]))
    if schema.get("x-kubernetes-int-or-string"):
        return rng.choice((*NUMBERS[:6], "50%", "a"))
    kind = schema.get("type", "")
    if kind == "object":
        return _random_map(rng, schema, wrong)
    if kind == "array":
        # A list of schemas is a mistake that was made on purpose.
        items = schema["items"] if isinstance(schema.get("items"), dict) else {}
        return [random_value(rng, items, wrong) for _ in range(rng.choice((0, 1, 2, 2, 3)))]
    if kind in _SCALARS:
        return rng.choice(_SCALARS[kind])
    return _junk(rng, 1) if wrong else rng.choice((1, "a", True))


def _random_map(rng: Random, schema: Raw, wrong: float) -> Raw:
    result: Raw = {}
    if schema.get("x-kubernetes-embedded-resource"):
        result = {"apiVersion": rng.choice(("v1", "a/v1")), "kind": rng.choice(("A", "B"))}
        if rng.random() < 0.7:
            # With all their fields: defaults are served as they are written.
            result["metadata"] = copy.deepcopy(rng.choice(METADATA)) if wrong else {"name": "A/b"}
        if rng.random() < wrong:
            result[rng.choice(("kind", "apiVersion"))] = rng.choice((1, "", "a b", "a/b/c", None))
    for name, entry in schema.get("properties", {}).items():
        if rng.random() < 0.75 and name != "metadata":
            result.setdefault(name, random_value(rng, entry, wrong))
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        for _ in range(rng.randint(0, 3)):
            result[rng.choice(_KEYS)] = random_value(rng, values, wrong)
    if rng.random() < 2 * wrong:
        result.setdefault(rng.choice(_KEYS), _junk(rng, 2))
    return result


def _junk(rng: Random, depth: int) -> Any:
    form = rng.random()
    if depth > 0 and form < 0.2:
        return {rng.choice(_KEYS): _junk(rng, depth - 1) for _ in range(rng.randint(0, 2))}
    if depth > 0 and form < 0.35:
        return [_junk(rng, depth - 1) for _ in range(rng.randint(0, 2))]
    return rng.choice((None, True, rng.choice(TEXTS), rng.choice(NUMBERS), rng.choice(_FLOATS)))


def changed_value(rng: Random, value: Any, schema: Raw | None, share: float) -> Any:
    """The value with some places changed, so that an update leaves others alone."""
    if rng.random() < share:
        return _junk(rng, 1) if schema is None else random_value(rng, schema, 0.2)
    if isinstance(value, dict):
        properties = (schema or {}).get("properties", {})
        return {
            key: changed_value(rng, entry, properties.get(key), share)
            for key, entry in value.items()
            if rng.random() > share / 2
        }
    if isinstance(value, list):
        result_list = [
            changed_value(rng, entry, (schema or {}).get("items"), share)
            for entry in value
            if rng.random() > share / 2
        ]
        if rng.random() < share:
            rng.shuffle(result_list)
        return result_list
    return value
