"""The table of the fields of the node configuration, from the schemas that its readers declare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from driver.devices.sharing import MOST_MPS_CLIENTS
from driver.health.health_rules import SCHEMA as HEALTH
from driver.policy.config import pool_schema, rule_schema
from tools.docs.lookup.marked import code, table

Schema = dict[str, Any]

WORDS = {
    "version": ("required", "the version of the file's fields"),
    "rules": (
        "none: every GPU whole, or in the partitions that exist",
        "the rules of nodes in no pool; the first rule that matches a GPU decides",
    ),
    "rules[].when": ("every GPU", "which GPUs, as a CEL expression over `gpu`"),
    "rules[].offer": ("`whole`, or as the other fields imply", "in which form the GPU is offered"),
    "rules[].mig": ("`static`", "which MIG partitions are offered: a word, or one of the two below"),
    "rules[].mig.dynamic.profiles": (
        "all profiles without attributes",
        "the profiles that claims can get, such as `1g.10gb` or `1g`",
    ),
    "rules[].mig.layout": (
        "",
        "a fixed set of partitions: the name of a layout, a list of profiles, or how many of each",
    ),
    "rules[].shared": (
        "not shared",
        "how the GPU or its partitions are shared; a list of two for both strategies",
    ),
    "rules[].shared.strategy": ("required", "whether pods take turns or run at the same time"),
    "rules[].shared.shares": (
        "as many as there are steps of memory",
        f"how many shares; with MPS at most {MOST_MPS_CLIENTS}",
    ),
    "rules[].shared.memory.step": (
        "claims can't ask for memory",
        "claims ask for memory in steps of this quantity",
    ),
    "rules[].shared.fractional": (
        "`false`",
        "one claim can have the whole device, or several can have parts of it",
    ),
    "rules[].vgpu": ("no vGPUs", "the vGPUs that a host offers of the GPU"),
    "rules[].vgpu.profiles": ("required", "vGPU profiles, by NVIDIA's names"),
    "rules[].vgpu.virtualFunctions": (
        "left as they are",
        "turn on the virtual functions of a GPU that has none on",
    ),
    "rules[].passthrough": ("`false`", "offer the GPU to virtual machines too"),
    "rules[].memoryLimits": ("`true`", "let the NVIDIA driver limit the memory of shares, if it can"),
    "pools": ("none", "rules for some nodes; the first pool whose selector matches a node decides"),
    "pools[].name": ("required", "the name in logs and events"),
    "pools[].nodeSelector": (
        "required",
        "which nodes, as a Kubernetes label selector",
    ),
    "pools[].nodeSelector.matchLabels": ("", "labels that a node must have, with their values"),
    "pools[].nodeSelector.matchExpressions[].key": ("required", "a label"),
    "pools[].nodeSelector.matchExpressions[].operator": (
        "required",
        "how the label is compared",
    ),
    "pools[].nodeSelector.matchExpressions[].values": ("", "the values for `In` and `NotIn`"),
    "pools[].rules": (
        "none: every GPU whole, or in the partitions that exist",
        "the rules of these nodes, with the fields of `rules[]`",
    ),
    "health": (
        "the driver's table; no pod is evicted",
        "how faults of GPUs are judged on all nodes",
    ),
    "health.xids": ("as in the driver's table", "the severity of an XID, by its code"),
    "health.evict": ("none", "faults for which pods are evicted"),
    "listAttributes": ("`false`", "publish some attributes as lists of values, on all nodes"),
}
"""The default and the meaning of each field."""


def schema() -> Schema:
    """The schema of the whole file."""
    rules = {"type": "array", "items": rule_schema()}
    pools = {"type": "array", "items": pool_schema()}
    lists = {"type": "boolean"}
    return {
        "properties": {
            "version": {"enum": ["v1"]},
            "rules": rules,
            "pools": pools,
            "health": HEALTH,
            "listAttributes": lists,
        }
    }


def fields() -> dict[str, list[Schema]]:
    """All fields by their paths, with the schemas of their values."""
    # The rules of pools have the same fields as the rules at the top.
    found: dict[str, list[Schema]] = {}
    for path, one in _walk(schema(), ""):
        found.setdefault(path, []).append(one)
    return {path: said for path, said in found.items() if not path.startswith("pools[].rules[]")}


def field_table() -> str:
    """All fields as a table; ValueError for a field without a meaning, or a meaning without a field."""
    found = {path: said for path, said in fields().items() if path in WORDS or not _holds_others(path)}
    if set(found) != set(WORDS):
        raise ValueError(
            f"fields and words in tools/docs/lookup/node_fields.py differ: {sorted(set(found) ^ set(WORDS))}"
        )
    rows = [(code(path), _types(found[path]), default, meaning) for path, (default, meaning) in WORDS.items()]
    return table(("field", "takes", "default", "means"), rows)


def _holds_others(path: str) -> bool:
    return any(other.startswith((f"{path}.", f"{path}[")) for other in fields())


def _walk(one: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Every field below a schema, also in its choices, with its path.

    ``shared`` is one mapping or a list of them: the fields of its items have the path of ``shared`` itself.
    """
    for name, below in one.get("properties", {}).items():
        inner = f"{path}.{name}" if path else name
        yield inner, below
        yield from _walk(below, inner)
    for choice in one.get("anyOf", ()):
        yield from _walk(choice, path)
    items = one.get("items", {})
    if "properties" in items:
        is_choice = path.endswith(".shared")
        yield from _walk(items, path if is_choice else f"{path}[]")


def _types(said: list[Schema]) -> str:
    return "; ".join(dict.fromkeys(word for one in said for word in _words(one)))


def _words(one: Schema) -> Iterator[str]:
    for choice in one.get("anyOf", ()):
        if "required" not in choice or "type" in choice:
            yield from _words(choice)
    if "enum" in one:
        yield ", ".join(
            code("off" if word is False else str(word))
            for word in dict.fromkeys(one["enum"])
            if word is not False or "off" not in one["enum"]
        )
    kinds = one.get("type", [])
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        yield _WRITTEN[kind] + _limits(one, kind)


_WRITTEN = {
    "string": "text",
    "integer": "whole number",
    "boolean": "true or false",
    "array": "list",
    "object": "mapping",
}


def _limits(one: Schema, kind: str) -> str:
    if kind == "integer" and "minimum" in one:
        return (
            f" from {one['minimum']} to {one['maximum']}" if "maximum" in one else f" from {one['minimum']}"
        )
    if kind == "string" and "maxLength" in one:
        return f" of at most {one['maxLength']} characters"
    if kind == "array" and "enum" in one.get("items", {}):
        return f" of {', '.join(map(code, one['items']['enum']))}"
    values = one.get("additionalProperties")
    if kind == "object" and isinstance(values, dict) and "enum" in values:
        return f" to {', '.join(map(code, values['enum']))}"
    return ""
