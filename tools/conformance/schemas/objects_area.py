"""Compares what becomes of custom objects: pruning, defaults, and the errors by schema with their texts."""

from __future__ import annotations

from random import Random
from typing import Any

from kubernetes_rules.custom_resources.embedded import NotObjectMeta
from kubernetes_rules.custom_resources.objects import defaulted, pruned, scale_errors, schema_errors
from kubernetes_rules.custom_resources.schema import parse_schema
from kubernetes_rules.validation.field import FieldError
from tools.conformance.area import Answer, Area, Case
from tools.conformance.schemas.object_cases import written_objects
from tools.conformance.schemas.random_schemas import changed_value, random_schema, random_value

_SCALE = {"specReplicasPath": ".spec.a", "statusReplicasPath": ".status.a", "labelSelectorPath": ".status.b"}
# The rest of these texts are words of Go's JSON decoder and of its types.
_GO_WORDS = ("json: cannot unmarshal", "parsing time")


def _random(rng: Random) -> Case:
    schema = random_schema(rng)
    item = _object(rng, schema)
    case: Case = {"op": "custom", "schema": schema, "object": item}
    if rng.random() < 0.5:
        old = changed_value(rng, item, schema, rng.choice((0.02, 0.1, 0.3)))
        case["old"] = item | {"spec": old.get("spec")} if isinstance(old, dict) and "spec" in old else item
    if rng.random() < 0.2:
        case["scale"] = _SCALE
    return case


def _object(rng: Random, schema: dict[str, Any]) -> dict[str, Any]:
    item: dict[str, Any] = random_value(rng, schema, 0.0)
    wrong = rng.choice((0.0, 0.05, 0.15))
    for name in ("spec", "status"):
        if rng.random() < 0.9:
            item[name] = random_value(rng, schema["properties"][name], wrong)
    if rng.random() < wrong:
        item["zz"] = {"a": 1}
    metadata = {"name": rng.choice(("a", "abc")), "namespace": "default", "resourceVersion": "1"}
    return item | {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata}


def difference(case: Case, answer: Answer) -> str | None:
    """How our answer to a case of custom objects differs."""
    schema = parse_schema(case["schema"])
    if "error" in answer:
        return f"the oracle failed: {answer['error']}"
    try:
        item, unknown = pruned(schema, case["object"])
    except NotObjectMeta as refused:
        # Kubernetes names the first that it finds in random order.
        return None if "refused" in answer else f"only ours refuses: {refused}"
    if "refused" in answer:
        return f"only Kubernetes refuses: {answer['refused']}"
    item = defaulted(schema, item)
    if item != answer["object"]:
        return f"ours: {item}; Kubernetes': {answer['object']}"
    if unknown != (answer["unknown"] or []):
        return f"unknown fields: {unknown}; Kubernetes': {answer['unknown']}"
    found = schema_errors(schema, item, case.get("old"))
    if "scale" in case:
        found += scale_errors(case["scale"], item)
    return errors_difference(found, answer["errors"])


def errors_difference(found: list[FieldError], answered: list[list[str]]) -> str | None:
    """How errors differ in field, type or text."""
    ours = {_told(error) for error in found}
    theirs = {_told(FieldError(*entry)) for entry in answered}
    if ours == theirs:
        return None
    return f"only ours: {sorted(ours - theirs)}; only Kubernetes': {sorted(theirs - ours)}"


def _told(error: FieldError) -> tuple[str, str, str]:
    detail = error.detail
    for words in _GO_WORDS:
        detail = detail.partition(words)[0]
    return error.field, error.type, detail


AREA = Area("custom-objects", lambda: list(written_objects()), _random, difference)
