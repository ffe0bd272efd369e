"""Compares the rules of CustomResourceDefinitions: refusals, estimated costs, results, costs at run time."""

from __future__ import annotations

import re
from typing import Any

from kubernetes_rules.cel.estimation.declared import Declared, escaped
from kubernetes_rules.custom_resources.openapi import openapi_errors
from kubernetes_rules.custom_resources.rules.declarations import declare
from kubernetes_rules.custom_resources.rules.definitions import definition_rule_errors
from kubernetes_rules.custom_resources.rules.evaluation import evaluate_rules
from kubernetes_rules.custom_resources.rules.programs import cardinality, compile_rules
from kubernetes_rules.custom_resources.schema import Schema, parse_schema
from tools.conformance.area import Answer, Area, Case
from tools.conformance.rules.cases import written_rules
from tools.conformance.rules.random import random_case

PATH = "spec.validation.openAPIV3Schema"
_RULES = re.compile(r"x-kubernetes-validations|contributed to estimated rule cost|estimated rule cost total")
_OWN_WORDS = (
    (re.compile(r"selfType\d+"), "selfType"),
    # The grammar's own words for a wrong text, and those of functions for a wrong value, differ.
    (
        re.compile(r"compilation failed: ERROR: .*(?:Syntax error|error during formatting).*", re.DOTALL),
        "syntax",
    ),
    # Of several rules with the same cost, any may be named.
    (re.compile(r".*: (?=Forbidden: contributed to)"), ""),
    (re.compile(r"instantiation failed: .*", re.DOTALL), "instantiation failed"),
    (re.compile(r": [^\n]*? evaluating rule: ", re.DOTALL), ": evaluating rule: "),
    (re.compile(r"'no such overload[^']*'"), "'no such overload'"),
)


def _words(text: str) -> str:
    if "invalid argument to has() macro" in text or "argument must be a simple name" in text:
        # The parser of Kubernetes goes on after such an error, ours does not.
        text = text.partition("ERROR:")[0] + "ERROR: Syntax error"
    for pattern, replacement in _OWN_WORDS:
        text = pattern.sub(replacement, text)
    return text


def _costs(schema: Schema, declared: Declared | None, path: str, found: dict[str, list[int]]) -> None:
    """The estimated costs of all rules, by the paths that the oracle uses."""
    if declared is None:
        return
    for index, rule in enumerate(compile_rules(schema, schema, declared, frozenset())):
        count = 0 if rule.program is None else cardinality(declared)
        found[f"{path}[{index}]"] = [rule.cost, count, rule.message_cost]
    for name, part in schema.properties.items():
        _costs(part, declared.fields.get(escaped(name) or ""), f"{path}.{name}", found)
    for below, step in ((schema.items, "[]"), (schema.values, "{}")):
        if below is not None:
            _costs(below, declared.element, path + step, found)


def our_answer(case: Case) -> Answer:
    """Our answer, in the form of the oracle's answers."""
    schema = parse_schema(case["schema"])
    if case["op"] == "definitionRules":
        costs: dict[str, list[int]] = {}
        _costs(schema, declare(schema, is_resource=True), "", costs)
        errors = openapi_errors(case["schema"], PATH)
        errors += definition_rule_errors(schema, PATH, errors)
        return {"errors": [str(error) for error in errors], "costs": costs}
    warnings: list[str] = []
    errors, left = evaluate_rules(schema, case["object"], case.get("old"), warnings)
    return {"errors": [str(error) for error in errors], "left": left, "warnings": warnings}


def _has_map(value: Any, schema: dict[str, Any]) -> bool:
    """Whether an object has a map with several keys, which Go's rules go through in random order."""
    if isinstance(value, list):
        return any(_has_map(entry, schema.get("items") or {}) for entry in value)
    if not isinstance(value, dict):
        return False
    values = schema.get("additionalProperties")
    if values:
        return len(value) > 1 or any(_has_map(entry, values) for entry in value.values())
    properties = schema.get("properties") or {}
    return any(_has_map(entry, properties.get(key, {})) for key, entry in value.items())


def _compared(answer: Answer) -> dict[str, Any]:
    errors = {_words(text) for text in answer["errors"]}
    if "costs" in answer:
        errors = {text for text in errors if _RULES.search(text)}
        return {"errors": sorted(errors), "costs": answer["costs"]}
    warnings = sorted({_words(text) for text in answer.get("warnings", ())})
    return {"errors": sorted(errors), "left": answer.get("left"), "warnings": warnings}


def _parts(theirs: Any, ours: Any) -> str:
    """Those parts of two answers that differ."""
    if isinstance(theirs, dict):
        theirs, ours = theirs.items(), ours.items()
    if isinstance(theirs, int):
        return f"Kubernetes answers {theirs}, we {ours}"
    only, more = [one for one in theirs if one not in ours], [one for one in ours if one not in theirs]
    return f"only Kubernetes answers {only}, only we {more}"


def difference(case: Case, answer: Answer) -> str | None:
    """How our answer differs. Go goes through maps in random order, so that errors are a set."""
    if "error" in answer:
        return f"Kubernetes does not understand the case: {answer['error']}"
    theirs, ours = _compared(answer), _compared(our_answer(case))
    if _has_map(case.get("object"), case["schema"]) or _has_map(case.get("old"), case["schema"]):
        theirs.pop("left", None)
    for key, value in theirs.items():
        if value is not None and ours[key] != value:
            return f"{key}: {_parts(value, ours[key])}"
    return None


AREA = Area("rules", written_rules, random_case, difference)
