"""Compares whether CustomResourceDefinitions are valid, with the texts of errors, and what is stored."""

from __future__ import annotations

import copy
import re
from random import Random
from typing import Any

from kubernetes_rules.custom_resources.definitions import (
    defaulted_definition,
    definition_errors,
    definition_warnings,
    prepared_definition,
)
from kubernetes_rules.validation.field import FieldError
from tools.conformance.area import Answer, Area, Case
from tools.conformance.schemas.definition_cases import KEYWORDS, definition, written_definitions
from tools.conformance.schemas.objects_area import errors_difference
from tools.conformance.schemas.random_schemas import random_schema, random_value

_WORDS = (
    "", "a", "A", "widgets", "example.com", "k8s.io", "a_b", "v1", "v2", ".spec.a", ".status.b", "spec", ".",
    ".spec", ".metadata.name", ".spec[a]", "x" * 64, "object", "string", "array", "integer", "null", "date",
    "set", "map", "atomic", "granular", "a\n", " ", "Namespaced", "Cluster", "None", "[", "(?P<a", "int32",
)  # fmt: skip
# Kubernetes shows the whole value in Go's names.
_WHOLE = re.compile(
    r'^Invalid value: (?:\{"(?:ID|Schema)"|\[\{"Name"|\[\]|null).*?: (only \[|must )', re.DOTALL
)
# Rules are compiled elsewhere.
_RULES = re.compile("rule compiler initialization error|^Internal error")
_ERROR_OF_EXPRESSION = re.compile(r"(isn't: error parsing regexp: ).*", re.DOTALL)


def _random(rng: Random) -> Case:
    crd = definition(random_schema(rng) if rng.random() < 0.7 else None)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        _change(rng, crd)
    case: Case = {"op": "definition", "object": crd}
    if rng.random() < 0.3:
        old = _stored(definition(random_schema(rng)), rng)
        new = copy.deepcopy(old)
        new["spec"] = crd["spec"] if rng.random() < 0.5 else new["spec"]
        new["metadata"]["annotations"] = crd["metadata"].get("annotations")
        _change(rng, new)
        case = {"op": "definition", "object": new, "old": old}
    return case


def _stored(crd: dict[str, Any], rng: Random) -> dict[str, Any]:
    crd = prepared_definition(defaulted_definition(crd))
    crd["metadata"]["resourceVersion"] = "1"
    state = rng.choice(("True", "False"))
    crd["status"]["conditions"] = [{"type": "Established", "status": state, "lastTransitionTime": None}]
    if rng.random() < 0.2:
        crd["status"]["storedVersions"].append("v0")
    return crd


def _change(rng: Random, crd: dict[str, Any]) -> None:
    """Change one place of a definition, most often in a schema."""
    spec = crd["spec"]
    version = rng.choice(spec["versions"])
    form = rng.random()
    if form < 0.5:
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema:
            _change_schema(rng, rng.choice(list(_nodes(schema))))
    elif form < 0.6:
        second = copy.deepcopy(version) | {"name": rng.choice(("v1", "v2", "v3alpha1"))}
        second["storage"] = rng.random() < 0.2
        spec["versions"].append(second)
    elif form < 0.75:
        places = [spec, spec["names"], version, *version.get("additionalPrinterColumns", [])]
        place = rng.choice(places + version.get("selectableFields", []))
        texts = [key for key, value in place.items() if isinstance(value, str)]
        if texts:
            place[rng.choice(texts)] = rng.choice(_WORDS)
    else:
        _change_fields(rng, crd, version)


def _change_fields(rng: Random, crd: dict[str, Any], version: dict[str, Any]) -> None:
    spec = crd["spec"]
    changes: tuple[tuple[dict[str, Any], str, Any], ...] = (
        (spec, "preserveUnknownFields", True),
        (spec, "conversion", {"strategy": rng.choice(("None", "", "Foo"))}),
        (spec, "conversion", {"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}}),
        (spec, "group", rng.choice(("a.k8s.io", "kubernetes.io", "a.b", "nodots"))),
        (
            crd["metadata"],
            "annotations",
            {"api-approved.kubernetes.io": rng.choice(("unapproved, a", "https://a.b/c", "x"))},
        ),
        (crd["metadata"], "name", rng.choice(("widgets.example.com", "a", "A.b"))),
        (crd["metadata"], "finalizers", ["a b", "kubernetes"]),
        (spec["names"], "shortNames", ["w", "W", "a b"]),
        (spec["names"], "categories", ["all", "-"]),
        (version, "subresources", {"status": {}}),
        (
            version,
            "subresources",
            {"scale": {"specReplicasPath": rng.choice(_WORDS), "statusReplicasPath": rng.choice(_WORDS)}},
        ),
        (
            version,
            "subresources",
            {
                "status": {},
                "scale": {
                    "specReplicasPath": ".spec.a",
                    "statusReplicasPath": ".status.a",
                    "labelSelectorPath": rng.choice(_WORDS),
                },
            },
        ),
        (version, "storage", rng.random() < 0.5),
        (version, "deprecated", True),
        (version, "deprecationWarning", rng.choice(("", "x" * 257, "a\x00b", "old", "é\u200b"))),
        (version, "schema", rng.choice((None, {}))),
        (
            version,
            "additionalPrinterColumns",
            [
                {
                    "name": rng.choice(_WORDS),
                    "type": rng.choice(_WORDS),
                    "format": rng.choice(_WORDS),
                    "jsonPath": rng.choice(_WORDS),
                }
            ],
        ),
        (
            version,
            "selectableFields",
            [
                {
                    "jsonPath": rng.choice(
                        (".spec.a", ".spec.b", ".spec['a']", "", ".", "spec", ".metadata.name", ".status.a.b")
                    )
                }
                for _ in range(rng.choice((1, 2)))
            ],
        ),
        (spec, "scope", rng.choice(("Cluster", "", "foo"))),
    )
    place, key, value = rng.choice(changes)
    place[key] = value


def _nodes(schema: Any) -> list[dict[str, Any]]:
    found = [schema]
    for keyword in ("items", "additionalProperties", "not"):
        if isinstance(schema.get(keyword), dict):
            found += _nodes(schema[keyword])
    for entry in schema.get("properties", {}).values():
        found += _nodes(entry)
    for keyword in ("allOf", "anyOf", "oneOf"):
        for entry in schema.get(keyword, []):
            found += _nodes(entry)
    return found


def _change_schema(rng: Random, schema: dict[str, Any]) -> None:
    if rng.random() < 0.2 and schema:
        del schema[rng.choice(list(schema))]
    elif rng.random() < 0.15:
        schema["default"] = random_value(rng, schema, 0.1)
    elif rng.random() < 0.1:
        rule = {"rule": rng.choice(("", "true\n")), "message": rng.choice(("", " ", "a\nb", "ok"))}
        rule |= {"fieldPath": rng.choice((".a", ".a.b", "['a']", " ", "a"))} if rng.random() < 0.5 else {}
        schema["x-kubernetes-validations"] = [rule | {"reason": rng.choice(("FieldValueInvalid", "Foo"))}]
    else:
        keyword, value = rng.choice(KEYWORDS)
        schema[keyword] = copy.deepcopy(value)


def difference(case: Case, answer: Answer) -> str | None:
    """How our answer to a case of definitions differs."""
    if "error" in answer:
        return f"the oracle failed: {answer['error']}"
    if "panic" in answer:
        return None
    old = case.get("old")
    crd = prepared_definition(defaulted_definition(case["object"]), old)
    warnings = definition_warnings(crd, old)
    if sorted(set(warnings)) != sorted(set(answer["warnings"] or [])):
        return f"our warnings: {warnings}; Kubernetes': {answer['warnings']}"
    found = [_comparable(error) for error in definition_errors(crd, old)]
    answered = [entry for entry in answer.get("errors", []) if not _RULES.search(entry[2])]
    theirs = [_comparable(FieldError(*entry)) for entry in answered]
    different = errors_difference(found, [[error.field, error.type, error.detail] for error in theirs])
    if different or "errors" in answer:
        return different
    ours = _cleaned({"spec": crd["spec"], "status": crd["status"]})
    stored = _cleaned({"spec": answer["spec"], "status": answer["status"]})
    return None if ours == stored else f"ours: {ours}; Kubernetes': {stored}"


def _cleaned(value: Any) -> Any:
    """The value without what Kubernetes leaves out or writes for nothing."""
    if isinstance(value, dict):
        found = {key: _cleaned(entry) for key, entry in value.items()}
        return {
            key: entry
            for key, entry in found.items()
            if entry not in (None, "", [], {}) and entry is not False
        }
    return [_cleaned(entry) for entry in value] if isinstance(value, list) else value


def _comparable(error: FieldError) -> FieldError:
    detail = _WHOLE.sub(r"Invalid value: \1", error.detail)
    return FieldError(error.field, error.type, _ERROR_OF_EXPRESSION.sub(r"\1", detail))


AREA = Area("definitions", lambda: list(written_definitions()), _random, difference)
