"""Plans calls of functions: finds the signature that takes the values, and counts the cost of the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubernetes_rules.cel.libraries import COUNTED_BY_SIGNATURE
from kubernetes_rules.cel.operators import (
    COST,
    COST_LIMIT,
    FAILED,
    WORK,
    Aborted,
    Evaluate,
    Frame,
    check_cost,
    equality_units,
)
from kubernetes_rules.cel.syntax import Call
from kubernetes_rules.cel.times import Duration, Timestamp
from kubernetes_rules.cel.types import DYN, CelError, Cost, Overload, Type, Uint, list_of
from kubernetes_rules.cel.values import OpaqueValue, Optional

_CHECKED_INSIDE = frozenset((
    "_+_", "_-_", "_*_", "_/_", "_%_", "-_", "!_", "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in", "in",
    "size", "type", "dyn", "matches", "cel.@mapInsert", "optional.of", "optional.none",
    "optional.ofNonZeroValue",
))  # fmt: skip
"""Functions that check the types of their arguments themselves."""
_ONE_IMPLEMENTATION = _CHECKED_INSIDE | {"sort", "@sortByAssociatedKeys"}
"""Functions that have one implementation in cel-go for all their signatures."""
_PYTHON_TYPES: dict[str, type] = {
    "bool": bool, "int": int, "uint": Uint, "double": float, "string": str, "bytes": bytes,
    "type": Type, "optional_type": Optional,
    "google.protobuf.Timestamp": Timestamp, "google.protobuf.Duration": Duration,
}  # fmt: skip
Guard = Callable[[Any], bool]


def _guard_of(kind: Type) -> Guard | None:
    """The check whether a value is of a type, a list by its first element; None for dyn and parameters."""
    if kind.name == "dyn" or kind.name[0] == "<":
        return None
    if kind.name == "list":
        return _list_guard(_guard_of(kind.parameters[0]))
    if kind.name == "map":
        return _map_guard(_guard_of(kind.parameters[0]), _guard_of(kind.parameters[1]))
    python_type = _PYTHON_TYPES.get(kind.name)
    if python_type is not None:
        return lambda value: type(value) is python_type
    return lambda value: isinstance(value, OpaqueValue) and value.type.name == kind.name


def _list_guard(first: Guard | None) -> Guard:
    def guard(value: Any) -> bool:
        return isinstance(value, tuple) and (first is None or not value or first(value[0]))

    return guard


def _map_guard(keys: Guard | None, values: Guard | None) -> Guard:
    def guard(value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        for key, item in value.items():
            return (keys is None or keys(key)) and (values is None or values(item))
        return True

    return guard


def _guarded(overload: Overload) -> tuple[tuple[tuple[int, Guard], ...], Callable[..., Any]]:
    kinds = overload.parameters
    # flatten() is declared for lists of lists, but when it runs it takes other elements too.
    if overload.name == "flatten":
        kinds = tuple(list_of(DYN) if kind.name == "list" else kind for kind in kinds)
    guards = tuple((index, guard) for index, kind in enumerate(kinds) if (guard := _guard_of(kind)))
    return guards, overload.call


def callee(name: str, overloads: tuple[Overload, ...]) -> Callable[..., Any]:
    """The function that is called with the values; it raises CelError if no signature takes them."""
    if name in _CHECKED_INSIDE:
        return overloads[0].call
    guarded = tuple(map(_guarded, overloads))
    if len(guarded) == 1:
        guards, only = guarded[0]
        return _guarded_call(name, guards, only)

    def dispatch(*arguments: Any) -> Any:
        for guards, call in guarded:
            if all(guard(arguments[index]) for index, guard in guards):
                return call(*arguments)
        raise CelError(f"no such overload: {name}")

    return dispatch


def _guarded_call(
    name: str, guards: tuple[tuple[int, Guard], ...], call: Callable[..., Any]
) -> Callable[..., Any]:
    if not guards:
        return call

    def guarded(*arguments: Any) -> Any:
        for index, guard in guards:
            if not guard(arguments[index]):
                raise CelError(f"no such overload: {name}")
        return call(*arguments)

    return guarded


def _opaque_equality(arguments: tuple[Any, ...], result: Any) -> int:
    return 1 if isinstance(arguments[0], OpaqueValue) else equality_units(arguments, result)


def _cost_of(name: str, overloads: tuple[Overload, ...]) -> Cost | None:
    """The cost function of a call; None for one unit.

    Kubernetes computes the cost of its own functions from their names. cel-go computes that of the others
    from the signature; if several fit, the call costs one unit.
    """
    if name == "_==_":
        return _opaque_equality
    if name == "_!=_" or len(overloads) == 1:
        return overloads[0].cost
    return None if name in COUNTED_BY_SIGNATURE else overloads[0].cost


def _failed_units(cost: Cost | None, arguments: tuple[Any, ...]) -> int:
    if cost is None:
        return 1
    try:
        return cost(arguments, FAILED)
    except AttributeError:
        return 1
    # Kubernetes panics here, for one in the cost of sorting, and recovers from that.
    except TypeError as error:
        raise Aborted("the cost of a failed call cannot be counted") from error


def _reading_text(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function of texts that also takes a type, for its name, and an optional, for its value."""

    def read(value: Any, *others: Any) -> Any:
        while isinstance(value, Optional) and value.present:
            value = value.value
        return call(value.name if isinstance(value, Type) else value, *others)

    return read


def planned_call(node: Call, arguments: list[Evaluate], *, reads_text: bool = False) -> Evaluate:
    """The evaluation of a call, from those of its arguments.

    ``reads_text``: the pattern is a literal. For these cel-go has another implementation, which takes more
    values for texts.
    """
    call = callee(node.function, node.overloads)
    if reads_text:
        call = _reading_text(call)
    cost = _cost_of(node.function, node.overloads)
    if len(arguments) == 1:
        return _unary(arguments[0], call, cost)
    one_by_one = len(node.overloads) > 1 and node.function not in _ONE_IMPLEMENTATION
    if len(arguments) == 2 and not reads_text and not one_by_one:
        return _binary(arguments[0], arguments[1], call, cost)
    return _any_arity(tuple(arguments), call, cost)


def _value_or_failed(evaluate: Evaluate, frame: Frame) -> Any:
    try:
        return evaluate(frame)
    except CelError:
        return FAILED


def _unary(argument: Evaluate, call: Callable[..., Any], cost: Cost | None) -> Evaluate:
    def run(frame: Frame) -> Any:
        try:
            value = argument(frame)
        except CelError:
            frame[COST] += _failed_units(cost, (FAILED,))
            raise
        try:
            result = call(value)
        except CelError:
            frame[COST] += _failed_units(cost, (value,))
            raise
        frame[COST] += 1 if cost is None else cost((value,), result)
        return result

    return run


def _binary(left: Evaluate, right: Evaluate, call: Callable[..., Any], cost: Cost | None) -> Evaluate:
    def run(frame: Frame) -> Any:
        try:
            one = left(frame)
        # cel-go evaluates both arguments of a binary call, so that the cost of the second counts too.
        except CelError:
            other = _value_or_failed(right, frame)
            frame[COST] += _failed_units(cost, (FAILED, other))
            raise
        try:
            other = right(frame)
        except CelError:
            frame[COST] += _failed_units(cost, (one, FAILED))
            raise
        try:
            result = call(one, other)
        except CelError:
            frame[COST] += _failed_units(cost, (one, other))
            raise
        if cost is None:
            frame[COST] += 1
            if type(result) is tuple:
                frame[WORK] += len(result)
                check_cost(frame)
        else:
            frame[COST] += cost((one, other), result)
            if frame[COST] > COST_LIMIT:
                check_cost(frame)
        return result

    return run


def text_equality(left: Evaluate, text: str, overloads: tuple[Overload, ...]) -> Evaluate:
    """``left == "text"``, the most frequent call in selectors; the same as by planned_call, but faster."""
    call, cost, length = callee("_==_", overloads), _opaque_equality, len(text)

    def run(frame: Frame) -> Any:
        try:
            value = left(frame)
        except CelError:
            frame[COST] += _failed_units(cost, (FAILED, text))
            raise
        if type(value) is str:
            shorter = len(value)
            frame[COST] += ((min(length, shorter)) + 9) // 10
            return value == text
        frame[COST] += _failed_units(cost, (value, text))
        return call(value, text)

    return run


def _any_arity(arguments: tuple[Evaluate, ...], call: Callable[..., Any], cost: Cost | None) -> Evaluate:
    """A call that stops at the first argument that fails; it costs nothing then, unless that is the last."""
    first, last = arguments[:-1], arguments[-1:]

    def run(frame: Frame) -> Any:
        values = tuple([argument(frame) for argument in first])
        try:
            values += tuple([argument(frame) for argument in last])
            result = call(*values)
        except CelError:
            given = values if len(values) == len(arguments) else (*values, FAILED)
            frame[COST] += _failed_units(cost, given)
            raise
        frame[COST] += 1 if cost is None else cost(values, result)
        check_cost(frame)
        return result

    return run
