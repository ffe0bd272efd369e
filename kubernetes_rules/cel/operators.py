"""The operators and the standard functions of CEL (cel-go, common/stdlib/standard.go).

What a call costs is that of cel-go, interpreter/runtimecost.go.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from kubernetes_rules.cel.frame import Aborted
from kubernetes_rules.cel.library_regex import compiled
from kubernetes_rules.cel.library_semver import Semver
from kubernetes_rules.cel.library_values import (
    Optional,
    compare,
    equal,
    regex_units,
    size,
    string_units,
    surely_equal,
    type_name,
)
from kubernetes_rules.cel.times import Duration, Timestamp, difference, duration, timestamp
from kubernetes_rules.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    CelError,
    Overload,
    Type,
    Uint,
    list_of,
    map_of,
    parameter,
)

A, B = parameter("A"), parameter("B")
LIST, MAP = list_of(A), map_of(A, B)
_INT = (-(2**63), 2**63 - 1)
_UINT = (0, 2**64 - 1)
_NUMBERS = (DOUBLE, INT, UINT)
_NUMERIC_PAIRS = (
    (BOOL, BOOL), (INT, INT), (INT, DOUBLE), (INT, UINT), (UINT, UINT), (UINT, DOUBLE), (UINT, INT),
    (DOUBLE, DOUBLE), (DOUBLE, INT), (DOUBLE, UINT),
)  # fmt: skip


def _whole(number: int, kind: type[int]) -> int:
    lowest, highest = _UINT if kind is Uint else _INT
    if not lowest <= number <= highest:
        raise CelError("integer overflow")
    return kind(number)


def _arithmetic(
    integers: Callable[[int, int], int], doubles: Callable[[float, float], float] | None
) -> Callable[[Any, Any], Any]:
    """An operation over two numbers of one type."""

    def call(left: Any, right: Any) -> Any:
        kind = type(left)
        if kind is type(right):
            if kind is int or kind is Uint:
                return _whole(integers(left, right), kind)
            if kind is float and doubles is not None:
                return doubles(left, right)
        raise CelError("no such overload")

    return call


def _quotient(left: int, right: int) -> int:
    if right == 0:
        raise CelError("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) is (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise CelError("modulus by zero")
    if left == _INT[0] and right == -1:
        raise CelError("integer overflow")
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


def _divided(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


_plus = _arithmetic(operator.add, operator.add)
_minus = _arithmetic(operator.sub, operator.sub)
multiply = _arithmetic(operator.mul, operator.mul)
divide = _arithmetic(_quotient, _divided)
_modulo = _arithmetic(_remainder, None)


class Gathered(list[Any]):
    """The list that a macro is making, to which elements are appended in place."""


def add(left: Any, right: Any) -> Any:
    """``left + right``. Raises CelError on overflow, and for values that have no sum."""
    kind = type(left)
    if kind is Gathered and isinstance(right, tuple | Gathered):
        left.extend(right)
        return left
    if kind is type(right):
        if kind in (str, bytes, tuple):
            return left + right
        if kind is Duration:
            return duration(left.nanoseconds + right.nanoseconds)
    if kind is Duration and isinstance(right, Timestamp):
        left, right = right, left
    if isinstance(left, Timestamp) and isinstance(right, Duration):
        return timestamp(left.nanoseconds + right.nanoseconds, left.offset_seconds)
    return _plus(left, right)


def _subtract(left: Any, right: Any) -> Any:
    """``left - right``. Raises CelError on overflow, and for values that have no difference."""
    if isinstance(right, Duration):
        if isinstance(left, Duration):
            return duration(left.nanoseconds - right.nanoseconds)
        if isinstance(left, Timestamp):
            return timestamp(left.nanoseconds - right.nanoseconds, left.offset_seconds)
    if isinstance(left, Timestamp) and isinstance(right, Timestamp):
        return difference(left, right)
    return _minus(left, right)


def _negate(value: Any) -> Any:
    """``-value``. Raises CelError on overflow, and for what has no sign."""
    if type(value) is int:
        return _whole(-value, int)
    if type(value) is float:
        return -value
    if isinstance(value, Duration):
        return duration(-value.nanoseconds)
    raise CelError("no such overload")


def _invert(value: Any) -> bool:
    """``!value``. Raises CelError for what is no bool."""
    if value is True:
        return False
    if value is False:
        return True
    raise CelError("no such overload")


def _not_equal(left: Any, right: Any) -> bool:
    """``left != right``, which is true where ``==`` would fail."""
    return not surely_equal(left, right)


def _in_list(wanted: Any, elements: Any) -> bool:
    """Whether an element equals the wanted value, or a map has the key."""
    if isinstance(elements, Mapping):
        return find(elements, wanted) is not MISSING
    if not isinstance(elements, tuple):
        raise CelError("no such overload")
    return any(surely_equal(wanted, element) for element in elements)


MISSING = object()


class DeviceMap(dict[str, Any]):
    """A map that belongs to the device: its keys are strings, and a key of another type is just not there."""

    __slots__ = ()


def check_hashable(key: Any, values: Any) -> None:
    """Raises Aborted for a key that Kubernetes cannot look up: there, that is a crash which is caught."""
    if isinstance(key, bytes | Semver) and values and not isinstance(values, DeviceMap):
        raise Aborted("bytes and versions cannot be looked up")


def find(values: Mapping[Any, Any], key: Any) -> Any:
    """The value of a key, MISSING if it has none. Numbers of any type find each other, bools only bools."""
    check_hashable(key, values)
    try:
        value = values.get(key, MISSING)
    except TypeError:
        return MISSING
    if value is not MISSING and type(key) is not str and isinstance(key, int | float):
        is_bool = isinstance(key, bool)
        if not any(isinstance(one, bool) is is_bool and one == key for one in values):
            return MISSING
    return value


def _size_of(value: Any) -> int:
    """The number of characters, bytes, elements or entries. Raises CelError for what has no size."""
    if isinstance(value, str | bytes | tuple | Mapping):
        return len(value)
    raise CelError("no such overload")


def matches(text: Any, pattern: Any) -> bool:
    """Whether an RE2 expression matches a part of the text. Raises CelError for a wrong expression."""
    if not isinstance(text, str) or not isinstance(pattern, str):
        raise CelError("no such overload")
    return compiled(pattern).search(text) is not None


def _shorter(arguments: tuple[Any, ...], _: Any) -> int:
    return math.ceil(min(map(size, arguments)) * 0.1)


def equality_units(arguments: tuple[Any, ...], _: Any) -> int:
    """What ``==`` and ``!=`` cost."""
    return math.ceil(min(_held_size(arguments[0]), _held_size(arguments[1])) * 0.1)


def _held_size(value: Any) -> int:
    while isinstance(value, Optional) and value.present:
        value = value.value
    return size(value)


def _both(arguments: tuple[Any, ...], _: Any) -> int:
    return math.ceil((size(arguments[0]) + size(arguments[1])) * 0.1)


def _contains_units(arguments: tuple[Any, ...], _: Any) -> int:
    return string_units(arguments[0]) * string_units(arguments[1])


def _second(arguments: tuple[Any, ...], _: Any) -> int:
    return string_units(arguments[1])


def _elements(arguments: tuple[Any, ...], _: Any) -> int:
    return size(arguments[1])


def _matches_units(arguments: tuple[Any, ...], _: Any) -> int:
    return regex_units(arguments[0], size(arguments[1]))


def _function(name: str, parameters: tuple[Type, ...], result: Type, call: Any, cost: Any = None) -> Overload:
    return Overload(name, receiver=False, parameters=parameters, result=result, call=call, cost=cost)


def _method(name: str, parameters: tuple[Type, ...], result: Type, call: Any, cost: Any = None) -> Overload:
    return Overload(name, receiver=True, parameters=parameters, result=result, call=call, cost=cost)


def _comparisons(name: str, holds: Callable[[Any, Any], bool]) -> tuple[Overload, ...]:
    def call(left: Any, right: Any) -> bool:
        if type(left) is int and type(right) is int:
            return holds(left, right)
        return holds(compare(left, right), 0)

    return (
        *(_function(name, pair, BOOL, call) for pair in _NUMERIC_PAIRS),
        *(_function(name, (kind, kind), BOOL, call, _shorter) for kind in (STRING, BYTES)),
        *(_function(name, (kind, kind), BOOL, call) for kind in (TIMESTAMP, DURATION)),
    )


def _unary(name: str, kinds: tuple[Type, ...], call: Any) -> tuple[Overload, ...]:
    return tuple(_function(name, (kind,), kind, call) for kind in kinds)


def _binary(name: str, kinds: tuple[Type, ...], call: Any) -> tuple[Overload, ...]:
    return tuple(_function(name, (kind, kind), kind, call) for kind in kinds)


def never_called(*_: Any) -> Any:
    """Stands for what the evaluator does itself."""
    raise CelError("no such overload")


def _starts(text: str, start: str) -> bool:
    return text.startswith(start)


def _ends(text: str, end: str) -> bool:
    return text.endswith(end)


def _contains(text: str, part: str) -> bool:
    return part in text


def _type_value(value: Any) -> Type:
    """What ``type(value)`` gives."""
    return Type(type_name(value))


OVERLOADS: tuple[Overload, ...] = (
    _function("_?_:_", (BOOL, A, A), A, never_called),
    _function("_&&_", (BOOL, BOOL), BOOL, never_called),
    _function("_||_", (BOOL, BOOL), BOOL, never_called),
    _function("!_", (BOOL,), BOOL, _invert),
    _function("@not_strictly_false", (BOOL,), BOOL, never_called),
    _function("_==_", (A, A), BOOL, equal, equality_units),
    _function("_!=_", (A, A), BOOL, _not_equal, equality_units),
    _function("_+_", (BYTES, BYTES), BYTES, add, _both),
    *_binary("_+_", (DOUBLE, DURATION), add),
    _function("_+_", (DURATION, TIMESTAMP), TIMESTAMP, add),
    _function("_+_", (TIMESTAMP, DURATION), TIMESTAMP, add),
    _function("_+_", (INT, INT), INT, add),
    _function("_+_", (LIST, LIST), LIST, add),
    _function("_+_", (STRING, STRING), STRING, add, _both),
    _function("_+_", (UINT, UINT), UINT, add),
    *_binary("_/_", _NUMBERS, divide),
    *_binary("_%_", (INT, UINT), _modulo),
    *_binary("_*_", _NUMBERS, multiply),
    *_unary("-_", (DOUBLE, INT), _negate),
    *_binary("_-_", (DOUBLE, DURATION, INT), _subtract),
    _function("_-_", (TIMESTAMP, DURATION), TIMESTAMP, _subtract),
    _function("_-_", (TIMESTAMP, TIMESTAMP), DURATION, _subtract),
    _function("_-_", (UINT, UINT), UINT, _subtract),
    *_comparisons("_<_", operator.lt),
    *_comparisons("_<=_", operator.le),
    *_comparisons("_>_", operator.gt),
    *_comparisons("_>=_", operator.ge),
    _function("_[_]", (LIST, INT), A, never_called),
    _function("_[_]", (MAP, A), B, never_called),
    _function("@in", (A, LIST), BOOL, _in_list, _elements),
    _function("@in", (A, MAP), BOOL, _in_list),
    _function("in", (A, LIST), BOOL, _in_list, _elements),
    _function("in", (A, MAP), BOOL, _in_list),
    *(_function("size", (kind,), INT, _size_of) for kind in (BYTES, LIST, MAP, STRING)),
    *(_method("size", (kind,), INT, _size_of) for kind in (BYTES, LIST, MAP, STRING)),
    _function("type", (A,), Type("type", (A,)), _type_value),
    _function("dyn", (A,), DYN, lambda value: value),
    _method("contains", (STRING, STRING), BOOL, _contains, _contains_units),
    _method("startsWith", (STRING, STRING), BOOL, _starts, _second),
    _method("endsWith", (STRING, STRING), BOOL, _ends, _second),
    _function("matches", (STRING, STRING), BOOL, matches, _matches_units),
    _method("matches", (STRING, STRING), BOOL, matches, _matches_units),
)
