"""Functions on lists.

Kubernetes' own come from k8s.io/apiserver/pkg/cel/library/lists.go (version 1). The others come from cel-go:
ext/lists.go (version 3), and ext/sets.go for lists used as sets.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

from kubernetes_rules.cel import types, values
from kubernetes_rules.cel.times import Duration
from kubernetes_rules.cel.types import BOOL, INT, CelError, Cost, Uint, function, list_of, method
from kubernetes_rules.cel.values import size, surely_equal, traversed_value

_LARGEST_RANGE = 1_000_000
_ELEMENTS = list_of(types.parameter("T"))
_ANY = types.parameter("A")
_COMPARABLE = (
    INT,
    types.UINT,
    types.DOUBLE,
    BOOL,
    types.DURATION,
    types.TIMESTAMP,
    types.STRING,
    types.BYTES,
)


def _is_sorted(elements: tuple[Any, ...]) -> bool:
    """Whether no element is greater than the next. Raises CelError for elements without an order."""
    _check_comparable(elements)
    return not any(_order(one, other) == 1 for one, other in pairwise(elements))


def _lowest(elements: tuple[Any, ...]) -> Any:
    """The first of the least elements. Raises CelError for an empty list, and elements without an order."""
    return _best("min", elements, 1)


def _highest(elements: tuple[Any, ...]) -> Any:
    """The first of the greatest elements. Raises CelError for an empty list and elements without an order."""
    return _best("max", elements, -1)


def _best(name: str, elements: tuple[Any, ...], worse: int) -> Any:
    if not elements:
        raise CelError(f"{name} called on empty list")
    _check_comparable(elements)
    best = elements[0]
    for element in elements[1:]:
        if _order(best, element) == worse:
            best = element
    return best


def _check_comparable(elements: tuple[Any, ...]) -> None:
    for element in elements:
        if not values.is_comparable(element):
            raise CelError(f"no such overload: a {values.type_name(element)} has no order")


def _order(left: Any, right: Any) -> int | None:
    """-1, 0 or 1; None if the two have no order, which Kubernetes does not treat as an error here."""
    try:
        return values.compare(left, right)
    except CelError:
        return None


def _sum_from(zero: Any) -> Callable[[tuple[Any, ...]], Any]:
    def total(elements: tuple[Any, ...]) -> Any:
        result = zero
        for element in elements:
            result = values.add(result, element)
        return result

    return total


def index_of(elements: tuple[Any, ...], wanted: Any) -> int:
    """The position of the first equal element, or -1."""
    return next((index for index, element in enumerate(elements) if surely_equal(element, wanted)), -1)


def _last_index_of(elements: tuple[Any, ...], wanted: Any) -> int:
    """The position of the last equal element, or -1."""
    return max((index for index, element in enumerate(elements) if surely_equal(element, wanted)), default=-1)


def includes(target: Any, wanted: Any) -> bool:
    """Whether a list has an equal element, or another value is equal."""
    if isinstance(target, tuple):
        return index_of(target, wanted) >= 0
    return surely_equal(target, wanted)


def slice_of(elements: tuple[Any, ...], start: int, end: int) -> tuple[Any, ...]:
    """The elements from ``start`` to before ``end``. Raises CelError if one is outside."""
    if not 0 <= start <= end <= len(elements):
        raise CelError(f"cannot slice({start}, {end}), list is length {len(elements)}")
    return elements[start:end]


def flatten(elements: tuple[Any, ...], depth: int = 1) -> tuple[Any, ...]:
    """The elements, with lists replaced by their elements down to ``depth``. Raises CelError if negative."""
    if depth < 0:
        raise CelError("level must be non-negative")
    flat: list[Any] = []
    for element in elements:
        if isinstance(element, tuple) and depth > 0:
            flat.extend(flatten(element, depth - 1))
        else:
            flat.append(element)
    return tuple(flat)


def distinct(elements: tuple[Any, ...]) -> tuple[Any, ...]:
    """The elements without those that equal an earlier one. Raises CelError for very large lists."""
    values.check_comparisons(len(elements) ** 2)
    kept: list[Any] = []
    for element in elements:
        if not any(surely_equal(element, other) for other in kept):
            kept.append(element)
    return tuple(kept)


def _numbers_below(end: int) -> tuple[int, ...]:
    """The integers from 0 to before ``end``. Raises CelError for a negative end, and one above a million."""
    if not 0 <= end <= _LARGEST_RANGE:
        raise CelError(f"lists.range: a size of {end} is not within 0 and {_LARGEST_RANGE}")
    return tuple(range(end))


def _sort_by(elements: tuple[Any, ...], keys: tuple[Any, ...]) -> tuple[Any, ...]:
    """The elements sorted by their keys. Raises CelError for keys without an order or of several types."""
    if len(elements) != len(keys):
        raise CelError(f"@sortByAssociatedKeys() expected as many keys as elements, {len(elements)}")
    if not keys:
        return elements
    _check_comparable(keys[:1])
    if len(set(map(values.type_name, keys))) > 1:
        raise CelError("list elements must have the same type")

    # Go leaves more than twelve elements with equal keys in an order of its own.
    def compared(one: int, other: int) -> int:
        return _order(keys[one], keys[other]) or 0

    return tuple(elements[index] for index in sorted(range(len(keys)), key=cmp_to_key(compared)))


def sort(elements: tuple[Any, ...]) -> tuple[Any, ...]:
    """The elements in ascending order. Raises CelError for elements without an order or of several types."""
    if len(set(map(type, elements))) == 1 and isinstance(elements[0], int | str | bytes):
        return tuple(sorted(elements))
    return _sort_by(elements, elements)


def _has(elements: tuple[Any, ...], wanted: Any) -> bool:
    return any(surely_equal(wanted, element) for element in elements)


def contains(elements: tuple[Any, ...], subset: tuple[Any, ...]) -> bool:
    """Whether the elements contain each element of the subset. Raises CelError for very large lists."""
    values.check_comparisons(len(elements) * len(subset))
    return all(_has(elements, wanted) for wanted in subset)


def intersects(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    """Whether an element is in both. Raises CelError for very large lists."""
    values.check_comparisons(len(left) * len(right))
    return any(_has(right, wanted) for wanted in left)


def equivalent(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    """Whether both have the same elements, in any order and number."""
    return contains(left, right) and contains(right, left)


def _list_units(elements: int, factor: float) -> int:
    return int(elements * (1.0 if factor < 0 else factor)) + values.CALL_UNITS + values.LIST_UNITS


def _result_cost(_: tuple[Any, ...], result: Any) -> int:
    return _list_units(size(result), 1)


def _flatten_cost(arguments: tuple[Any, ...], _: Any) -> int:
    return _list_units(size(arguments[0]), float(arguments[1]) if len(arguments) > 1 else 1)


def _comparison_cost(which: int) -> Cost:
    """The cost of comparing each element of an argument with each other; strings cost a little more."""

    def cost(arguments: tuple[Any, ...], _: Any) -> int:
        elements = arguments[which]
        texts = bool(elements) and isinstance(elements[0], str | bytes)
        return _list_units(len(elements) ** 2, 2.1 if texts else 2.0)

    return cost


def _cost_times(factor: int) -> Cost:
    return lambda arguments, _: values.CALL_UNITS + size(arguments[0]) * size(arguments[1]) * factor


_KUBERNETES_OVERLOADS = (
    *(method("isSorted", (list_of(kind),), BOOL, _is_sorted, traversed_value) for kind in _COMPARABLE),
    method("sum", (list_of(INT),), INT, _sum_from(0), traversed_value),
    method("sum", (list_of(types.UINT),), types.UINT, _sum_from(Uint(0)), traversed_value),
    method("sum", (list_of(types.DOUBLE),), types.DOUBLE, _sum_from(0.0), traversed_value),
    method("sum", (list_of(types.DURATION),), types.DURATION, _sum_from(Duration(0)), traversed_value),
    *(method("max", (list_of(kind),), kind, _highest, traversed_value) for kind in _COMPARABLE),
    *(method("min", (list_of(kind),), kind, _lowest, traversed_value) for kind in _COMPARABLE),
    method("indexOf", (list_of(_ANY), _ANY), INT, index_of, traversed_value),
    method("lastIndexOf", (list_of(_ANY), _ANY), INT, _last_index_of, traversed_value),
    method("includes", (types.DYN, types.DYN), BOOL, includes, traversed_value),
)
_LIST_OVERLOADS = (
    method("slice", (_ELEMENTS, INT, INT), _ELEMENTS, slice_of, _result_cost),
    method("flatten", (list_of(_ELEMENTS),), _ELEMENTS, flatten, _flatten_cost),
    method("flatten", (list_of(types.DYN), INT), list_of(types.DYN), flatten, _flatten_cost),
    *(method("sort", (list_of(kind),), list_of(kind), sort, _comparison_cost(0)) for kind in _COMPARABLE),
    *(
        method("@sortByAssociatedKeys", (_ELEMENTS, list_of(kind)), _ELEMENTS, _sort_by, _comparison_cost(1))
        for kind in _COMPARABLE
    ),
    function("lists.range", (INT,), list_of(INT), _numbers_below, _result_cost),
    method("reverse", (_ELEMENTS,), _ELEMENTS, lambda elements: elements[::-1], _result_cost),
    method("distinct", (_ELEMENTS,), _ELEMENTS, distinct, _comparison_cost(0)),
)
SET_OVERLOADS = (
    function("sets.contains", (_ELEMENTS, _ELEMENTS), BOOL, contains, _cost_times(1)),
    function("sets.equivalent", (_ELEMENTS, _ELEMENTS), BOOL, equivalent, _cost_times(2)),
    function("sets.intersects", (_ELEMENTS, _ELEMENTS), BOOL, intersects, _cost_times(1)),
)
EXTENSION_OVERLOADS = _LIST_OVERLOADS + SET_OVERLOADS
OVERLOADS = _KUBERNETES_OVERLOADS + EXTENSION_OVERLOADS
