"""The operators and the standard functions of CEL (cel-go, common/stdlib/standard.go), and the frame.

Their costs are those of cel-go, interpreter/runtimecost.go. The frame is the state of one evaluation: a list,
for speed, which closures read and write by these indexes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from kubernetes_rules.cel import types, values
from kubernetes_rules.cel.library_numbers import Semver
from kubernetes_rules.cel.library_regex import compiled
from kubernetes_rules.cel.times import Duration, Timestamp, difference, duration, timestamp
from kubernetes_rules.cel.types import BOOL, DOUBLE, INT, UINT, CelError, Overload, Uint, function, method

Frame = list[Any]
Evaluate = Callable[[Frame], Any]

COST = 0
WORK = 1
DEVICE = 2
FIRST_SLOT = 3
COST_LIMIT = 1_000_000
"""The units that an evaluation may cost (resource.k8s.io/v1, CELSelectorExpressionMaxCost)."""
WORK_LIMIT = 10_000_000
"""The elements that adding lists may copy. In Kubernetes they cost nothing, since cel-go does not copy."""

FAILED = object()
"""Replaces the value of a failed argument when costs are computed; its size is 1."""


class Aborted(Exception):
    """The evaluation ends: it costs too much, or Kubernetes would panic. No operator absorbs this."""


def check_cost(frame: Frame) -> None:
    """Raises Aborted if the evaluation has cost more than it may."""
    if frame[COST] > COST_LIMIT or frame[WORK] > WORK_LIMIT:
        raise Aborted(f"the evaluation costs more than {COST_LIMIT} units")


A, B = types.parameter("A"), types.parameter("B")
LIST, MAP = types.list_of(A), types.map_of(A, B)
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
    """An operation on two numbers of one type: CEL has no arithmetic between int, uint and double."""

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
    """The list that a macro builds; elements are appended in place."""


def add(left: Any, right: Any) -> Any:
    """``left + right``. Raises CelError on overflow, and for values that cannot be added."""
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
    if isinstance(left, tuple) and isinstance(right, tuple):
        return (*left, *right)
    return _plus(left, right)


def _subtract(left: Any, right: Any) -> Any:
    """``left - right``. Raises CelError on overflow, and for values that cannot be subtracted."""
    if isinstance(right, Duration):
        if isinstance(left, Duration):
            return duration(left.nanoseconds - right.nanoseconds)
        if isinstance(left, Timestamp):
            return timestamp(left.nanoseconds - right.nanoseconds, left.offset_seconds)
    if isinstance(left, Timestamp) and isinstance(right, Timestamp):
        return difference(left, right)
    return _minus(left, right)


def _negate(value: Any) -> Any:
    """``-value``. Raises CelError on overflow, and for values that cannot be negated."""
    if type(value) is int:
        return _whole(-value, int)
    if type(value) is float:
        return -value
    if isinstance(value, Duration):
        return duration(-value.nanoseconds)
    raise CelError("no such overload")


def _invert(value: Any) -> bool:
    """``!value``. Raises CelError unless it is a bool."""
    if value is True:
        return False
    if value is False:
        return True
    raise CelError("no such overload")


def _not_equal(left: Any, right: Any) -> bool:
    """``left != right``, which is true if ``==`` would fail."""
    return not values.surely_equal(left, right)


def _in_list(wanted: Any, elements: Any) -> bool:
    """``wanted in elements``: whether a list has an equal element, or a map the key."""
    if isinstance(elements, Mapping):
        return find(elements, wanted) is not MISSING
    if not isinstance(elements, tuple):
        raise CelError("no such overload")
    return any(values.surely_equal(wanted, element) for element in elements)


MISSING = object()


class DeviceMap(dict[str, Any]):
    """A map of the device. Its keys are strings; a key of another type is missing and not an error."""

    __slots__ = ()


def check_hashable(key: Any, entries: Any) -> None:
    """Raises Aborted for a key that Kubernetes cannot look up: there it is a Go panic, which is recovered."""
    if isinstance(key, bytes | Semver) and entries and not isinstance(entries, DeviceMap):
        raise Aborted("bytes and versions cannot be looked up")


def find(entries: Mapping[Any, Any], key: Any) -> Any:
    """The value of a key, MISSING if there is none. Numbers of any type match by value, bools only bools."""
    check_hashable(key, entries)
    try:
        value = entries.get(key, MISSING)
    except TypeError:
        return MISSING
    if value is not MISSING and type(key) is not str and isinstance(key, int | float):
        is_bool = isinstance(key, bool)
        if not any(isinstance(one, bool) is is_bool and one == key for one in entries):
            return MISSING
    return value


def _size_of(value: Any) -> int:
    """The number of characters, bytes, elements or entries. Raises CelError for other values."""
    if isinstance(value, str | bytes | tuple | Mapping):
        return len(value)
    raise CelError("no such overload")


def matches(text: Any, pattern: Any) -> bool:
    """Whether an RE2 expression matches a part of the text. Raises CelError for an invalid expression."""
    if not isinstance(text, str) or not isinstance(pattern, str):
        raise CelError("no such overload")
    return compiled(pattern).search(text) is not None


def _shorter_units(arguments: tuple[Any, ...], _: Any) -> int:
    return math.ceil(min(map(values.size, arguments)) * 0.1)


def equality_units(arguments: tuple[Any, ...], _: Any) -> int:
    """The cost of ``==`` and ``!=``."""
    return math.ceil(min(_unwrapped_size(arguments[0]), _unwrapped_size(arguments[1])) * 0.1)


def _unwrapped_size(value: Any) -> int:
    while isinstance(value, values.Optional) and value.present:
        value = value.value
    return values.size(value)


def _both_units(arguments: tuple[Any, ...], _: Any) -> int:
    return math.ceil((values.size(arguments[0]) + values.size(arguments[1])) * 0.1)


def _contains_units(arguments: tuple[Any, ...], _: Any) -> int:
    return values.string_units(arguments[0]) * values.string_units(arguments[1])


def _second_units(arguments: tuple[Any, ...], _: Any) -> int:
    return values.string_units(arguments[1])


def _element_units(arguments: tuple[Any, ...], _: Any) -> int:
    return values.size(arguments[1])


def _matches_units(arguments: tuple[Any, ...], _: Any) -> int:
    return values.regex_units(arguments[0], values.size(arguments[1]))


def _comparisons(name: str, holds: Callable[[Any, Any], bool]) -> tuple[Overload, ...]:
    def call(left: Any, right: Any) -> bool:
        if type(left) is int and type(right) is int:
            return holds(left, right)
        return holds(values.compare(left, right), 0)

    return (
        *(function(name, pair, BOOL, call) for pair in _NUMERIC_PAIRS),
        *(function(name, (kind, kind), BOOL, call, _shorter_units) for kind in (types.STRING, types.BYTES)),
        *(function(name, (kind, kind), BOOL, call) for kind in (types.TIMESTAMP, types.DURATION)),
    )


def _unary(name: str, kinds: tuple[types.Type, ...], call: Any) -> tuple[Overload, ...]:
    return tuple(function(name, (kind,), kind, call) for kind in kinds)


def _binary(name: str, kinds: tuple[types.Type, ...], call: Any) -> tuple[Overload, ...]:
    return tuple(function(name, (kind, kind), kind, call) for kind in kinds)


def never_called(*_: Any) -> Any:
    """The implementation of what the planner evaluates itself; only its signature is used."""
    raise CelError("no such overload")


def _type_value(value: Any) -> types.Type:
    """``type(value)``."""
    return types.Type(values.type_name(value))


OVERLOADS: tuple[Overload, ...] = (
    function("_?_:_", (BOOL, A, A), A, never_called),
    function("_&&_", (BOOL, BOOL), BOOL, never_called),
    function("_||_", (BOOL, BOOL), BOOL, never_called),
    function("!_", (BOOL,), BOOL, _invert),
    function("@not_strictly_false", (BOOL,), BOOL, never_called),
    function("_==_", (A, A), BOOL, values.equal, equality_units),
    function("_!=_", (A, A), BOOL, _not_equal, equality_units),
    function("_+_", (types.BYTES, types.BYTES), types.BYTES, add, _both_units),
    *_binary("_+_", (DOUBLE, types.DURATION), add),
    function("_+_", (types.DURATION, types.TIMESTAMP), types.TIMESTAMP, add),
    function("_+_", (types.TIMESTAMP, types.DURATION), types.TIMESTAMP, add),
    function("_+_", (INT, INT), INT, add),
    function("_+_", (LIST, LIST), LIST, add),
    function("_+_", (types.STRING, types.STRING), types.STRING, add, _both_units),
    function("_+_", (UINT, UINT), UINT, add),
    *_binary("_/_", _NUMBERS, divide),
    *_binary("_%_", (INT, UINT), _modulo),
    *_binary("_*_", _NUMBERS, multiply),
    *_unary("-_", (DOUBLE, INT), _negate),
    *_binary("_-_", (DOUBLE, types.DURATION, INT), _subtract),
    function("_-_", (types.TIMESTAMP, types.DURATION), types.TIMESTAMP, _subtract),
    function("_-_", (types.TIMESTAMP, types.TIMESTAMP), types.DURATION, _subtract),
    function("_-_", (UINT, UINT), UINT, _subtract),
    *_comparisons("_<_", operator.lt),
    *_comparisons("_<=_", operator.le),
    *_comparisons("_>_", operator.gt),
    *_comparisons("_>=_", operator.ge),
    function("_[_]", (LIST, INT), A, never_called),
    function("_[_]", (MAP, A), B, never_called),
    function("@in", (A, LIST), BOOL, _in_list, _element_units),
    function("@in", (A, MAP), BOOL, _in_list),
    function("in", (A, LIST), BOOL, _in_list, _element_units),
    function("in", (A, MAP), BOOL, _in_list),
    *(function("size", (kind,), INT, _size_of) for kind in (types.BYTES, LIST, MAP, types.STRING)),
    *(method("size", (kind,), INT, _size_of) for kind in (types.BYTES, LIST, MAP, types.STRING)),
    function("type", (A,), types.Type("type", (A,)), _type_value),
    function("dyn", (A,), types.DYN, lambda value: value),
    method("contains", (types.STRING, types.STRING), BOOL, operator.contains, _contains_units),
    method("startsWith", (types.STRING, types.STRING), BOOL, str.startswith, _second_units),
    method("endsWith", (types.STRING, types.STRING), BOOL, str.endswith, _second_units),
    function("matches", (types.STRING, types.STRING), BOOL, matches, _matches_units),
    method("matches", (types.STRING, types.STRING), BOOL, matches, _matches_units),
)
