"""What kube-apiserver refuses of ``x-kubernetes-validations`` when a CustomResourceDefinition is written.

Source: apiextensions-apiserver, pkg/apis/apiextensions/validation (validation.go and cel_validation.go).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kubernetes_rules.cel.estimation.declared import Declared, escaped
from kubernetes_rules.cel.estimation.sizes import UNBOUNDED, times
from kubernetes_rules.custom_resources.rules.declarations import declare
from kubernetes_rules.custom_resources.rules.programs import CompiledRule, cardinality, compile_rules
from kubernetes_rules.custom_resources.schema import Schema
from kubernetes_rules.validation.field import INTERNAL, INVALID, FieldError, forbidden, invalid

RULE_COST, SCHEMA_COST = 10_000_000, 100_000_000
"""The units that one rule, and all rules of a schema together, may cost at most by their estimate."""
_KEY = "x-kubernetes-validations"
_HTML = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def definition_rule_errors(
    schema: Schema,
    path: str,
    schema_errors: Sequence[FieldError] = (),
    *,
    known: frozenset[str] = frozenset(),
    unchanged: bool = False,
) -> list[FieldError]:
    """The errors of the expressions in the rules of a schema, whose path is ``path``.

    ``schema_errors`` are all other errors of the schema: rules at such a place or above it are not compiled.
    ``known`` are the expressions of the stored definition, which may use more functions. ``unchanged``: the
    stored definition has the same schema, so that the cost of a single rule does not count.
    """
    walk = _Walk(known, unchanged, [error.field for error in schema_errors])
    scope = _Scope(schema, path, None, 1, root=True)
    walk.visit(scope)
    errors = walk.errors
    if walk.total > SCHEMA_COST:
        problem = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        errors += [
            forbidden(place, problem) for _, place in sorted(walk.expensive, key=lambda one: -one[0])[:4]
        ]
        name = f"{_KEY} estimated rule cost total for entire OpenAPIv3 schema"
        errors.append(forbidden(path, _cost_text(name, walk.total, SCHEMA_COST)))
    return errors


@dataclass(frozen=True, slots=True)
class _Scope:
    """One node of the schema. ``most`` is how often its value can occur, None without a limit.

    ``within``: it has rules or lies below a node with rules. ``uncorrelated`` is the path of the outermost
    list or map above it whose old values cannot be found, "" if there is none.
    """

    schema: Schema
    path: str
    declared: Declared | None
    most: int | None
    root: bool = False
    compiled: bool = True
    within: bool = False
    uncorrelated: str = ""


@dataclass(slots=True)
class _Walk:
    known: frozenset[str]
    unchanged: bool
    wrong: list[str]
    errors: list[FieldError] = field(default_factory=list)
    total: int = 0
    expensive: list[tuple[int, str]] = field(default_factory=list)

    def visit(self, scope: _Scope) -> None:
        """Check the rules below a node, then its own."""
        schema = scope.schema
        within = scope.within or bool(schema.x_validations)
        declared = scope.declared
        if within and declared is None and scope.compiled:
            declared = declare(schema, is_resource=scope.root or schema.x_embedded_resource)
        here = replace(scope, declared=declared if within else None, within=within)
        for child in _children(here):
            self.visit(child)
        if schema.x_validations and scope.compiled and not self._is_wrong(scope.path):
            self._check(here)

    def _is_wrong(self, path: str) -> bool:
        return any(place == path or place.startswith((f"{path}.", f"{path}[")) for place in self.wrong)

    def _check(self, scope: _Scope) -> None:
        if scope.declared is None:
            problem = "failed to construct type information for x-kubernetes-validations rules"
            why = "unable to convert structural schema to CEL declarations"
            text = f"Internal error: internal error: {problem}: {why}"
            self.errors.append(FieldError(f"{scope.path}.{_KEY}", INTERNAL, text))
            return
        most = cardinality(scope.declared) if scope.most is None else scope.most
        compiled = compile_rules(scope.schema, scope.schema, scope.declared, self.known)
        for index, rule in enumerate(compiled):
            self._check_rule(rule, f"{scope.path}.{_KEY}[{index}]", times(rule.cost, most), scope)

    def _check_rule(self, rule: CompiledRule, path: str, cost: int, scope: _Scope) -> None:
        self._check_cost(f"{path}.rule", "estimated rule cost", cost)
        if rule.error:
            self.errors.append(_rule_error(f"{path}.rule", rule.rule, rule.error))
        if rule.message_error:
            self.errors.append(_rule_error(f"{path}.messageExpression", rule.rule, rule.message_error))
        elif rule.message is not None:
            self._check_cost(
                f"{path}.messageExpression", "estimated messageExpression cost", rule.message_cost
            )
        if rule.changes and scope.uncorrelated:
            problem = "oldSelf cannot be used on the uncorrelatable portion of the schema within"
            self.errors.append(invalid(f"{path}.rule", rule.rule["rule"], f"{problem} {scope.uncorrelated}"))
        elif not rule.changes and (optional := rule.rule.get("optionalOldSelf")) is not None:
            problem = "may not be set if oldSelf is not used in rule"
            self.errors.append(invalid(f"{path}.optionalOldSelf", optional, problem))

    def _check_cost(self, path: str, name: str, cost: int) -> None:
        if cost > RULE_COST and not self.unchanged:
            self.errors.append(forbidden(path, _cost_text(name, cost, RULE_COST)))
        self.total = min(self.total + cost, UNBOUNDED)
        if cost >= SCHEMA_COST // 100:
            self.expensive.append((cost, path))


def _children(scope: _Scope) -> Iterator[_Scope]:
    schema, path, declared = scope.schema, scope.path, scope.declared
    element = None if declared is None else declared.element

    def child(
        part: Schema, place: str, found: Declared | None, *, uncorrelated: str = scope.uncorrelated
    ) -> _Scope:
        most = _most(schema)
        count = None if scope.most is None or most is None else times(scope.most, most)
        here = f"{path}.{place}"
        return replace(
            scope, schema=part, path=here, declared=found, most=count, root=False, uncorrelated=uncorrelated
        )

    if schema.values is not None:
        yield child(schema.values, "additionalProperties", element)
    lost = "" if schema.x_map_type in (None, "granular", "atomic") else path
    for name, part in schema.properties.items():
        found = None if declared is None else declared.fields.get(escaped(name) or "")
        yield child(part, f"properties[{name}]", found, uncorrelated=scope.uncorrelated or lost)
    not_ = () if schema.not_ is None else (("not", schema.not_),)
    several = {"allOf": schema.all_of, "oneOf": schema.one_of, "anyOf": schema.any_of}
    nested = ((f"{key}[{index}]", part) for key, parts in several.items() for index, part in enumerate(parts))
    for place, part in (*not_, *nested):
        yield _Scope(part, f"{path}.{place}", None, None, compiled=False, uncorrelated=scope.uncorrelated)
    if schema.items is not None:
        lost = "" if schema.x_list_type == "map" else path
        yield child(schema.items, "items", element, uncorrelated=scope.uncorrelated or lost)


def _most(schema: Schema) -> int | None:
    """How many values a value of this schema can contain, None without a limit."""
    if schema.type == "object" and schema.knows_keys:
        return None if schema.max_properties is None else max(schema.max_properties, 0)
    if schema.type == "array":
        return None if schema.max_items is None else max(schema.max_items, 0)
    return 1


def _rule_error(path: str, rule: Mapping[str, Any], detail: str) -> FieldError:
    """An error that shows the whole rule, as Go prints it."""
    shown = {
        "Rule": rule.get("rule") or "",
        "Message": rule.get("message") or "",
        "MessageExpression": rule.get("messageExpression") or "",
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath") or "",
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }
    text = json.dumps(shown, separators=(",", ":"), ensure_ascii=False).translate(_HTML)
    return FieldError(path, INVALID, f"Invalid value: {text}: {detail}")


def _cost_text(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    advice = "try simplifying the rule, or adding maxItems, maxProperties, and maxLength"
    return (
        f"{name} exceeds budget by factor of {shown} ({advice} where arrays, maps, and strings are declared)"
    )
