"""Compiles the validation rules of a schema (apiextensions-apiserver, schema/cel/compilation.go)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kubernetes_rules.cel import types
from kubernetes_rules.cel.checker import Objects
from kubernetes_rules.cel.estimation.declared import Declared, escaped
from kubernetes_rules.cel.estimation.estimate import estimated_cost
from kubernetes_rules.cel.issues import ExpressionInvalid
from kubernetes_rules.cel.program import Checked, Program, check_expression
from kubernetes_rules.cel.types import Type
from kubernetes_rules.custom_resources.field_paths import PathInvalid, resolved
from kubernetes_rules.custom_resources.rules.declarations import REQUEST_BYTES, SELF_TYPE, declare
from kubernetes_rules.custom_resources.schema import Schema


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """One rule. ``error`` and ``message_error`` say why it, or its messageExpression, is refused.

    ``cost`` and ``message_cost`` are the units that one evaluation costs at most. ``field`` is the path below
    the value that errors name. ``changes`` says whether it compares with the old value.
    """

    rule: Mapping[str, Any]
    program: Program | None = None
    error: str = ""
    cost: int = 0
    changes: bool = False
    message: Program | None = None
    message_error: str = ""
    message_cost: int = 0
    field: str = ""

    @property
    def old_is_optional(self) -> bool:
        """Whether ``oldSelf`` is an optional, so that the rule also applies where there is no old value."""
        return self.rule.get("optionalOldSelf") is True


@dataclass(frozen=True, slots=True)
class RuleTree:
    """The rules of one node of a schema, and those below it."""

    schema: Schema
    is_resource: bool
    rules: tuple[CompiledRule, ...]
    properties: Mapping[str, RuleTree] = field(default_factory=dict)
    items: RuleTree | None = None
    values: RuleTree | None = None
    all_of: tuple[RuleTree, ...] = ()


def cardinality(declared: Declared) -> int:
    """How often a value can be in one request at most, if no schema above it sets a limit."""
    return REQUEST_BYTES // (declared.least_bytes + 1)


def compile_rules(
    schema: Schema, rules: Schema, declared: Declared, known: frozenset[str] | None = None
) -> tuple[CompiledRule, ...]:
    """The rules of one node. ``rules`` is the schema that has them: ``schema``, or one below its ``all_of``.

    ``known`` are the expressions that are stored already; the others may not use functions of the newest
    version. None stands for all.
    """
    if not rules.x_validations:
        return ()
    objects = dict(declared.objects())
    return tuple(_compiled(rule, schema, declared, objects, known) for rule in rules.x_validations)


def _compiled(
    rule: Mapping[str, Any],
    schema: Schema,
    declared: Declared,
    objects: Objects,
    known: frozenset[str] | None,
) -> CompiledRule:
    text = rule.get("rule") or ""
    if not text.strip():
        return CompiledRule(rule)
    old = types.optional_of(declared.kind) if rule.get("optionalOldSelf") is True else declared.kind
    variables = {"self": declared.kind, "oldSelf": old}
    program, error, checked = _program(text, variables, objects, types.BOOL, known)
    if checked is None or program is None:
        changes = checked is not None and "oldSelf" in checked.names()
        return CompiledRule(rule, error=_shortened(error, declared), changes=changes)
    cost = estimated_cost(checked, declared)
    message, message_error, message_cost = None, "", 0
    if words := rule.get("messageExpression"):
        message, message_error, compiled = _program(words, variables, objects, types.STRING, known)
        if message is not None and compiled is not None:
            message_cost = estimated_cost(compiled, declared)
    place = "" if message_error else _field(rule.get("fieldPath") or "", schema)
    return CompiledRule(
        rule, program, "", cost, "oldSelf" in checked.names(), message, _shortened(message_error, declared),
        message_cost, place,
    )  # fmt: skip


def _field(path: str, schema: Schema) -> str:
    """A fieldPath as errors show it, "" if there is no such field."""
    try:
        keys = resolved(path, schema)[0]
    except PathInvalid:
        return ""
    text, place = "", schema
    for key in keys:
        step = key if not text else f".{key}"
        text += step if place.properties else f"[{key}]"
        place = place.child(key) or place
    return text


def _program(
    text: str, variables: Mapping[str, Type], objects: Objects, wanted: Type, known: frozenset[str] | None
) -> tuple[Program | None, str, Checked | None]:
    """The program of an expression, or why there is none, and the expression if its types fit."""
    is_rule = wanted == types.BOOL
    try:
        checked = check_expression(text, variables, objects, new=known is not None and text not in known)
    except ExpressionInvalid as error:
        return None, f"{'' if is_rule else 'messageExpression '}compilation failed: {error.shown(text)}", None
    if checked.result != wanted:
        kind = (
            "cel expression must evaluate to a bool"
            if is_rule
            else "messageExpression must evaluate to a string"
        )
        return None, kind, None
    try:
        return checked.program(), "", checked
    except ExpressionInvalid as error:
        problem = "program" if is_rule else "messageExpression"
        return None, f"{problem} instantiation failed: {error.issues[0][1]}", checked


def _shortened(text: str, declared: Declared) -> str:
    """The text with the type of ``self`` named as in Kubernetes, without the place in the schema."""
    return text if declared.name in ("", SELF_TYPE) else text.replace(declared.name, SELF_TYPE)


@lru_cache(maxsize=256)
def compiled_schema(schema: Schema) -> RuleTree | None:
    """The compiled rules of a stored schema, None if it has none."""
    if not _has_rules(schema):
        return None
    return _tree(schema, schema, is_resource=True, declared=declare(schema, is_resource=True))


def _has_rules(schema: Schema | None) -> bool:
    # Rules below allOf alone do not count, as in Kubernetes.
    return schema is not None and (
        bool(schema.x_validations)
        or _has_rules(schema.items)
        or _has_rules(schema.values)
        or any(map(_has_rules, schema.properties.values()))
    )


def _tree(rules: Schema, schema: Schema, *, is_resource: bool, declared: Declared | None) -> RuleTree | None:
    """The tree of the rules that ``rules`` has for values that ``schema`` describes."""
    compiled = compile_rules(schema, rules, declared) if declared is not None else ()
    element = None if declared is None else declared.element
    items = values = None
    if rules.items is not None and schema.items is not None:
        items = _tree(
            rules.items, schema.items, is_resource=schema.items.x_embedded_resource, declared=element
        )
    if rules.values is not None and schema.values is not None:
        embedded = schema.values.x_embedded_resource
        values = _tree(rules.values, schema.values, is_resource=embedded, declared=element)
    properties = {
        name: found
        for name, part in rules.properties.items()
        if (found := _property_tree(name, part, schema.properties.get(name), declared)) is not None
    }
    parts = (_tree(part, schema, is_resource=is_resource, declared=declared) for part in rules.all_of)
    all_of = tuple(part for part in parts if part is not None)
    if not (compiled or items or values or properties or all_of):
        return None
    return RuleTree(schema, is_resource, compiled, properties, items, values, all_of)


def _property_tree(
    name: str, rules: Schema, schema: Schema | None, declared: Declared | None
) -> RuleTree | None:
    if schema is None:
        return None
    embedded = schema.x_embedded_resource
    place = escaped(name)
    if place is None:
        found = declare(schema, is_resource=embedded)
    else:
        found = None if declared is None else declared.fields.get(place)
    return None if found is None else _tree(rules, schema, is_resource=embedded, declared=found)
