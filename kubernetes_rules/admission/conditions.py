"""Match conditions of webhooks and policies (apiserver/pkg/admission/plugin/webhook/matchconditions)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kubernetes_rules.admission.expressions import CONDITIONS_COST, Compiled, OutOfBudget, Scope, evaluate
from kubernetes_rules.cel.types import BOOL
from kubernetes_rules.validation import field, names
from kubernetes_rules.validation.field import FieldError, invalid, required

Json = Mapping[str, Any]

_MOST_CONDITIONS = 64


class ConditionsFailed(Exception):
    """Whether the conditions match cannot be said, and failurePolicy is Fail."""


def compile_conditions(conditions: Sequence[Json], scope: Scope) -> list[Compiled]:
    """The compiled match conditions of a policy, or of a webhook with ``Scope(False, composes=False)``."""
    return [scope.compile(condition["expression"], (BOOL,)) for condition in conditions]


def conditions_match(
    conditions: Sequence[Compiled],
    values: list[Any],
    failure_policy: str | None,
    variables: Mapping[str, Compiled] | None = None,
) -> bool:
    """Whether all conditions are true of a write. Raises ConditionsFailed.

    One that is false decides, also if others fail. ``namespaceObject`` is null in all.
    """
    if not conditions:
        return True
    values = [*values[:2], None, *values[3:]]
    try:
        found, _ = evaluate(conditions, variables or {}, values, CONDITIONS_COST)
    except OutOfBudget as error:
        return _undecided([str(error)], failure_policy)
    results = [result for result in found if result is not None]
    if any(result.value is False for result in results):
        return False
    errors = [result.error for result in results if result.error]
    return _undecided(errors, failure_policy) if errors else True


def _undecided(errors: Sequence[str], failure_policy: str | None) -> bool:
    if failure_policy == "Ignore":
        return False
    texts = list(dict.fromkeys(errors))
    raise ConditionsFailed(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")


def compile_errors(path: str, compiled: Compiled) -> Iterator[FieldError]:
    """The error of an expression that is wrong whatever the values are."""
    if compiled.error:
        yield invalid(path, compiled.expression, compiled.error)


def condition_errors(conditions: Sequence[Json], path: str, *, has_params: bool) -> Iterator[FieldError]:
    """The errors of the match conditions of a policy or of a webhook, which has no parameters."""
    scope = Scope(has_params, composes=False, new=True)
    if len(conditions) > _MOST_CONDITIONS:
        yield field.too_many(path, len(conditions), _MOST_CONDITIONS)
    seen = set()
    for index, condition in enumerate(conditions):
        here, name = f"{path}[{index}]", condition.get("name") or ""
        expression = (condition.get("expression") or "").strip()
        if expression:
            yield from compile_errors(f"{here}.expression", scope.compile(expression, (BOOL,)))
        else:
            yield required(f"{here}.expression")
        if not name:
            yield required(f"{here}.name")
            continue
        yield from field.all_invalid(f"{here}.name", name, names.label_key(name))
        if name in seen:
            yield field.duplicate(f"{here}.name", name)
        seen.add(name)
