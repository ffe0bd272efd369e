"""Applies the validation rules of a schema to an object.

Source: apiextensions-apiserver, schema/cel/validation.go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kubernetes_rules.cel.optionals import NONE, some
from kubernetes_rules.cel.program import NoValue, Program
from kubernetes_rules.cel.types import CelError
from kubernetes_rules.custom_resources.correlation import Correlated
from kubernetes_rules.custom_resources.rules.declarations import with_metadata
from kubernetes_rules.custom_resources.rules.programs import CompiledRule, RuleTree, compiled_schema
from kubernetes_rules.custom_resources.rules.values import rule_value
from kubernetes_rules.custom_resources.schema import Schema
from kubernetes_rules.validation import field as fields
from kubernetes_rules.validation.field import FieldError, duplicate, forbidden, invalid, required

REQUEST_COST = 10_000_000
"""The units that the rules may cost for one request."""
_LONGEST_MESSAGE = 5 * 1024
_ROOT = "<nil>"
"""How Kubernetes writes the path of the object itself."""
_NO_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
_NO_MESSAGE_BUDGET = f"messageExpression evaluation {_NO_BUDGET.removeprefix('validation ')}"


def rule_errors(
    schema: Schema,
    item: dict[str, Any],
    old: dict[str, Any] | None = None,
    warnings: list[str] | None = None,
) -> list[FieldError]:
    """The errors of the rules for an object whose types fit the schema, on update with the stored one.

    On update, a rule that an unchanged value breaks only adds a text to ``warnings``.
    """
    return evaluate_rules(schema, item, old, warnings)[0]


def evaluate_rules(
    schema: Schema, item: dict[str, Any], old: dict[str, Any] | None = None, warnings: list[str] | None = None
) -> tuple[list[FieldError], int]:
    """As ``rule_errors``, and the units that are left of those for one request; -1 if they ran out."""
    tree = compiled_schema(schema)
    if tree is None:
        return [], REQUEST_COST
    place = _Place(None if old is None else Correlated(schema, item, old), None, root=True)
    request = _Request([] if warnings is None else warnings)
    try:
        request.visit(tree, "", item, old, place)
    except _Stopped:
        request.left = -1
    return request.errors, request.left


class _Stopped(Exception):
    """No more rules run for this request."""


@dataclass(frozen=True, slots=True)
class _Place:
    """What is known of the old value: that of the value itself, else that of the nearest value above it."""

    here: Correlated | None
    above: Correlated | None
    root: bool = False

    def is_unchanged(self) -> bool:
        """Whether a broken rule is only a warning."""
        found = self.here or self.above
        return found is not None and found.is_unchanged()

    def child(self, key: str | int) -> _Place:
        """The place of a value at a key or an index."""
        if self.here is None:
            return _Place(None, self.above)
        if self.root and key in ("apiVersion", "kind"):
            return _Place(None, None)
        found = self.here.value_of(key) if isinstance(key, str) else self.here.entry(key)
        return _Place(found, self.here)


@dataclass(slots=True)
class _Request:
    warnings: list[str]
    errors: list[FieldError] = field(default_factory=list)
    left: int = REQUEST_COST

    def visit(self, tree: RuleTree, path: str, value: Any, old: Any, place: _Place) -> None:
        """Apply the rules of a node, and those below it. Raises _Stopped when the units ran out."""
        if value is None:
            return
        if tree.rules:
            self._apply(tree, path or _ROOT, value, old, place)
        for part in tree.all_of:
            self.visit(part, path, value, old, _Place(None, place.above))
        if isinstance(value, list) and tree.items is not None:
            for index, entry in enumerate(value):
                before = _old_entry(tree.schema, old, entry)
                self.visit(tree.items, f"{path}[{index}]", entry, before, place.child(index))
        elif isinstance(value, dict):
            self._visit_map(tree, path, value, old, place)

    def _visit_map(self, tree: RuleTree, path: str, value: dict[str, Any], old: Any, place: _Place) -> None:
        correlates = tree.schema.x_map_type in (None, "granular", "atomic") and isinstance(old, dict)
        for key, entry in value.items():
            before = old.get(key) if correlates else None
            if tree.values is not None:
                self.visit(tree.values, f"{path}[{key}]", entry, before, place.child(key))
            if key in tree.properties:
                here = f"{path}.{key}" if path else key
                self.visit(tree.properties[key], here, entry, before, place.child(key))

    def _apply(self, tree: RuleTree, path: str, value: Any, old: Any, place: _Place) -> None:
        if self.left <= 0:
            self._refuse(invalid(path, tree.schema.type, _NO_BUDGET))
        schema = with_metadata(tree.schema) if tree.is_resource else tree.schema
        read = _read_once(partial(rule_value, value, schema))
        read_old = _read_once(partial(rule_value, old, schema))
        for rule in tree.rules:
            if rule.error:
                self.errors.append(invalid(path, schema.type, f"rule compile error: {rule.error}"))
            if rule.program is None or (rule.changes and old is None and not rule.old_is_optional):
                continue
            fail = partial(self._refuse_invalid, path, schema.type)
            values = _values(rule, read, read_old, has_old=old is not None)
            truth = self._run(rule, rule.program, values, fail)
            if truth is None or truth is True:
                continue
            here = path if not rule.field else rule.field if path == _ROOT else f"{path}.{rule.field}"
            seen = partial(_seen_by_message, read, read_old if old is not None else None)
            detail = self._message(rule, seen, fail) or _message_of(rule)
            error = _error(here, value, schema.type, detail, rule.rule.get("reason"))
            if not rule.changes and place.is_unchanged():
                self.warnings.append(str(error))
            else:
                self.errors.append(error)

    def _run(
        self,
        rule: CompiledRule,
        program: Program,
        values: Callable[[], list[Any]],
        fail: Callable[[str], None],
    ) -> bool | None:
        """Whether the rule holds; None if it has no value, which is an error then."""
        try:
            evaluation = program.run_on(values())
        except (NoValue, CelError) as error:
            self._pay(error.cost if isinstance(error, NoValue) else 0, fail, _NO_BUDGET)
            detail, stops = _failure(rule, error)
            fail(detail)
            if stops:
                raise _Stopped from error
            return None
        self._pay(evaluation.cost, fail, _NO_BUDGET)
        return evaluation.value is True

    def _message(
        self, rule: CompiledRule, values: Callable[[], list[Any]], fail: Callable[[str], None]
    ) -> str:
        """The text of messageExpression, "" if it has none that can be shown."""
        if rule.message is None:
            return ""
        try:
            evaluation = rule.message.run_on(values())
        except (NoValue, CelError) as error:
            cost = error.cost if isinstance(error, NoValue) else 0
            if isinstance(error, NoValue) and error.too_costly and cost <= self.left:
                problem = "no further validation rules will be run due to call cost exceeds limit for"
                fail(f'{problem} messageExpression: "{rule.rule["messageExpression"]}"')
                raise _Stopped from error
            self._pay(cost, fail, _NO_MESSAGE_BUDGET)
            return ""
        self._pay(evaluation.cost, fail, _NO_MESSAGE_BUDGET)
        text = evaluation.value.strip() if isinstance(evaluation.value, str) else ""
        return "" if "\n" in text or len(text.encode()) > _LONGEST_MESSAGE else text

    def _pay(self, cost: int, fail: Callable[[str], None], problem: str) -> None:
        if cost > self.left:
            fail(problem)
            raise _Stopped
        self.left -= cost

    def _refuse_invalid(self, path: str, kind: str, detail: str) -> None:
        self.errors.append(invalid(path, kind, detail))

    def _refuse(self, error: FieldError) -> None:
        self.errors.append(error)
        raise _Stopped


def _read_once(read: Callable[[], Any]) -> Callable[[], Any]:
    """The same, read at the first call only."""
    known: list[Any] = []

    def value() -> Any:
        if not known:
            known.append(read())
        return known[0]

    return value


def _values(
    rule: CompiledRule, read: Callable[[], Any], read_old: Callable[[], Any], *, has_old: bool
) -> Callable[[], list[Any]]:
    def values() -> list[Any]:
        if not rule.changes:
            return [read(), None]
        if not rule.old_is_optional:
            return [read(), read_old()]
        return [read(), some(read_old()) if has_old else NONE]

    return values


def _seen_by_message(read: Callable[[], Any], read_old: Callable[[], Any] | None) -> list[Any]:
    # messageExpression gets the old value itself, also where the rule gets an optional.
    return [read(), None if read_old is None else read_old()]


def _old_entry(schema: Schema, old: Any, entry: Any) -> Any:
    """The entry of the old list with the same keys, None if there is none."""
    if not isinstance(old, list):
        return None
    found = Correlated(schema, [entry], old).entry(0)
    return None if found is None else found.old


def _failure(rule: CompiledRule, error: NoValue | CelError) -> tuple[str, bool]:
    """The text of a rule without a value, and whether no more rules run after it."""
    name, text = _name_of(rule), str(error)
    if isinstance(error, NoValue) and error.too_costly:
        problem = "no further validation rules will be run due to call cost exceeds limit for rule"
        return f"'operation cancelled: actual cost limit exceeded': {problem}: {name}", True
    if text.startswith("no such overload"):
        problem = "call arguments did not match a supported operator, function or macro signature for rule"
        return f"'{text}': {problem}: {name}", False
    return f"{text} evaluating rule: {name}", False


def _name_of(rule: CompiledRule) -> str:
    text: str = rule.rule.get("message") or rule.rule["rule"]
    return text.strip()


def _message_of(rule: CompiledRule) -> str:
    message: str = rule.rule.get("message") or ""
    return message.strip() if message else f"failed rule: {_name_of(rule)}"


def _error(path: str, value: Any, kind: str, detail: str, reason: str | None) -> FieldError:
    match reason:
        case fields.FORBIDDEN:
            return forbidden(path, detail)
        case fields.REQUIRED:
            return required(path, detail)
    is_duplicate = reason == fields.DUPLICATE
    # Objects and lists are not shown.
    if kind in ("object", "array"):
        if is_duplicate:
            return FieldError(path, fields.DUPLICATE, fields.TITLES[fields.DUPLICATE])
        return FieldError(path, fields.INVALID, f"{fields.TITLES[fields.INVALID]}: {detail}")
    return duplicate(path, value) if is_duplicate else invalid(path, value, detail)
