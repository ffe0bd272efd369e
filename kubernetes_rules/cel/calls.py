"""Calls functions: finds the signature for the values at hand, and counts what the call costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubernetes_rules.cel.frame import (
    COST,
    COST_LIMIT,
    FAILED,
    WORK,
    Aborted,
    Evaluate,
    Frame,
    attempt,
    check_cost,
)
from kubernetes_rules.cel.libraries import COUNTED_BY_SIGNATURE
from kubernetes_rules.cel.library_values import OpaqueValue, Optional
from kubernetes_rules.cel.operators import equality_units
from kubernetes_rules.cel.syntax import Call
from kubernetes_rules.cel.times import Duration, Timestamp
from kubernetes_rules.cel.types import DYN, CelError, Overload, Type, Uint, list_of

_CHECKED_INSIDE = frozenset(
    [
        "_+_",
        "_-_",
        "_*_",
        "_/_",
        "_%_",
        "-_",
        "!_",
        "_==_",
        "_!=_",
        "_<_",
        "_<=_",
        "_>_",
        "_>=_",
        "@in",
        "in",
        "size",
        "type",
        "dyn",
        "matches",
        "cel.@mapInsert",
        "optional.of",
        "optional.none",
        "optional.ofNonZeroValue",
    ]
)
"""Functions that look at the types of their arguments themselves."""
_ONE_IMPLEMENTATION = _CHECKED_INSIDE | {"sort", "@sortByAssociatedKeys"}
"""Functions that are the same in cel-go for all their signatures."""
_PYTHON_TYPES: dict[str, type] = {
    "bool": bool, "int": int, "uint": Uint, "double": float, "string": str, "bytes": bytes,
    "type": Type, "optional_type": Optional,
    "google.protobuf.Timestamp": Timestamp, "google.protobuf.Duration": Duration,
}  # fmt: skip
Guard = Callable[[Any], bool]


def _guard_of(kind: Type) -> Guard | None:
    """Tells whether a value is of a type, by its first element if it is a list; None if each is."""
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
    if overload.name == "flatten":  # it takes elements that are no lists as well, once it runs
        kinds = tuple(list_of(DYN) if kind.name == "list" else kind for kind in kinds)
    guards = tuple((index, guard) for index, kind in enumerate(kinds) if (guard := _guard_of(kind)))
    return guards, overload.call


def callee(name: str, overloads: tuple[Overload, ...]) -> Callable[..., Any]:
    """What is called with the values; it raises CelError when no signature takes them."""
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


def _cost_of(name: str, overloads: tuple[Overload, ...]) -> Callable[[tuple[Any, ...], Any], int] | None:
    """What counts the units of a call; None for one unit.

    Kubernetes counts its own by their names. Others cost one unit where several signatures fit.
    """
    if name == "_==_":
        return _opaque_equality
    if name == "_!=_" or len(overloads) == 1:
        return overloads[0].cost
    return None if name in COUNTED_BY_SIGNATURE else overloads[0].cost


def _failed_units(cost: Callable[[tuple[Any, ...], Any], int] | None, arguments: tuple[Any, ...]) -> int:
    if cost is None:
        return 1
    try:
        return cost(arguments, FAILED)
    except AttributeError:
        return 1
    except TypeError as error:  # the cost of sorting, for one: Kubernetes crashes here, and catches that
        raise Aborted("the cost of a failed call cannot be counted") from error


def _reading_text(call: Callable[..., Any]) -> Callable[..., Any]:
    """Lets a function take the name of a type, and what an optional holds, for a text."""

    def read(value: Any, *others: Any) -> Any:
        while isinstance(value, Optional) and value.present:
            value = value.value
        return call(value.name if isinstance(value, Type) else value, *others)

    return read


def planned_call(node: Call, arguments: list[Evaluate], *, reads_text: bool = False) -> Evaluate:
    """Evaluates the call, given what evaluates its arguments.

    ``reads_text`` is for patterns that are written out: cel-go then takes more values for texts.
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


def _unary(argument: Evaluate, call: Callable[..., Any], cost: Any) -> Evaluate:
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


def _binary(left: Evaluate, right: Evaluate, call: Callable[..., Any], cost: Any) -> Evaluate:
    def run(frame: Frame) -> Any:
        try:
            one = left(frame)
        except CelError:
            other = attempt(right, frame)
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
    """``left == "text"``, the most frequent of all calls: as planned_call would make it, but faster."""
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


def _any_arity(arguments: tuple[Evaluate, ...], call: Callable[..., Any], cost: Any) -> Evaluate:
    """Stops at the first argument that fails, in which case the call costs nothing unless it is the last."""
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
