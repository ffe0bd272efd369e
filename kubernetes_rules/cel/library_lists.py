"""Functions over lists.

Kubernetes' own are those of k8s.io/apiserver/pkg/cel/library/lists.go (version 1), the others those of
cel-go's ext/lists.go (version 3).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from kubernetes_rules.cel.library_sort import sorted_order
from kubernetes_rules.cel.library_time import Duration
from kubernetes_rules.cel.library_values import (
    CALL_UNITS,
    LIST_UNITS,
    Cost,
    add,
    check_comparisons,
    compare,
    function,
    is_comparable,
    method,
    size,
    surely_equal,
    traversed_value,
    type_name,
)
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
    Uint,
    list_of,
    parameter,
)

_LARGEST_RANGE = 1_000_000
_ELEMENTS = list_of(parameter("T"))
_ANY = parameter("A")
COMPARABLE = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)


def is_sorted(elements: tuple[Any, ...]) -> bool:
    """Whether no element is greater than the next. Raises CelError for elements without order."""
    _check_comparable(elements)
    return not any(_order(one, other) == 1 for one, other in pairwise(elements))


def lowest(elements: tuple[Any, ...]) -> Any:
    """The first of the least elements. Raises CelError for an empty list, and elements without order."""
    return _best("min", elements, 1)


def highest(elements: tuple[Any, ...]) -> Any:
    """The first of the greatest elements. Raises CelError for an empty list, and elements without order."""
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
        if not is_comparable(element):
            raise CelError(f"no such overload: a {type_name(element)} has no order")


def _order(left: Any, right: Any) -> int | None:
    """-1, 0 or 1; None where the two have no order, which Kubernetes passes over."""
    try:
        return compare(left, right)
    except CelError:
        return None


def _sum_from(zero: Any) -> Callable[[tuple[Any, ...]], Any]:
    def total(elements: tuple[Any, ...]) -> Any:
        result = zero
        for element in elements:
            result = add(result, element)
        return result

    return total


def index_of(elements: tuple[Any, ...], wanted: Any) -> int:
    """Where an equal element first is, or -1."""
    return next((index for index, element in enumerate(elements) if surely_equal(element, wanted)), -1)


def last_index_of(elements: tuple[Any, ...], wanted: Any) -> int:
    """Where an equal element last is, or -1."""
    return max((index for index, element in enumerate(elements) if surely_equal(element, wanted)), default=-1)


def includes(target: Any, wanted: Any) -> bool:
    """Whether a list has an equal element, or another value is equal."""
    if isinstance(target, tuple):
        return index_of(target, wanted) >= 0
    return surely_equal(target, wanted)


def part(elements: tuple[Any, ...], start: int, end: int) -> tuple[Any, ...]:
    """The elements from a position to before another. Raises CelError when one is outside."""
    if not 0 <= start <= end <= len(elements):
        raise CelError(f"cannot slice({start}, {end}), list is length {len(elements)}")
    return elements[start:end]


def flatten(elements: tuple[Any, ...], depth: int = 1) -> tuple[Any, ...]:
    """The elements, lists replaced by theirs, so many levels deep. Raises CelError for a negative depth."""
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
    """The first of each of the equal elements. Raises CelError for very large lists."""
    check_comparisons(len(elements) ** 2)
    kept: list[Any] = []
    for element in elements:
        if not any(surely_equal(element, other) for other in kept):
            kept.append(element)
    return tuple(kept)


def numbers_below(end: int) -> tuple[int, ...]:
    """The integers from 0 on. Raises CelError for a negative end, and one above a million."""
    if not 0 <= end <= _LARGEST_RANGE:
        raise CelError(f"lists.range: a size of {end} is not within 0 and {_LARGEST_RANGE}")
    return tuple(range(end))


def sort_by(elements: tuple[Any, ...], keys: tuple[Any, ...]) -> tuple[Any, ...]:
    """The elements in the order of their keys. Raises CelError for keys without order or of several types."""
    if len(elements) != len(keys):
        raise CelError(f"@sortByAssociatedKeys() expected as many keys as elements, {len(elements)}")
    if not keys:
        return elements
    _check_comparable(keys[:1])
    if len(set(map(type_name, keys))) > 1:
        raise CelError("list elements must have the same type")
    return tuple(elements[index] for index in sorted_order(keys, lambda one, other: _order(one, other) == -1))


def sort(elements: tuple[Any, ...]) -> tuple[Any, ...]:
    """The elements in ascending order. Raises CelError for elements without order or of several types."""
    if len(set(map(type, elements))) == 1 and isinstance(elements[0], int | str | bytes):
        return tuple(sorted(elements))
    return sort_by(elements, elements)


def _list_units(elements: int, factor: float) -> int:
    return int(elements * (1.0 if factor < 0 else factor)) + CALL_UNITS + LIST_UNITS


def _result_cost(_: tuple[Any, ...], result: Any) -> int:
    return _list_units(size(result), 1)


def _flatten_cost(arguments: tuple[Any, ...], _: Any) -> int:
    return _list_units(size(arguments[0]), float(arguments[1]) if len(arguments) > 1 else 1)


def _comparison_cost(which: int) -> Cost:
    """Each element of an argument compared with each; strings cost a little more."""

    def cost(arguments: tuple[Any, ...], _: Any) -> int:
        elements = arguments[which]
        texts = bool(elements) and isinstance(elements[0], str | bytes)
        return _list_units(len(elements) ** 2, 2.1 if texts else 2.0)

    return cost


KUBERNETES_OVERLOADS = (
    *(method("isSorted", (list_of(kind),), BOOL, is_sorted, traversed_value) for kind in COMPARABLE),
    method("sum", (list_of(INT),), INT, _sum_from(0), traversed_value),
    method("sum", (list_of(UINT),), UINT, _sum_from(Uint(0)), traversed_value),
    method("sum", (list_of(DOUBLE),), DOUBLE, _sum_from(0.0), traversed_value),
    method("sum", (list_of(DURATION),), DURATION, _sum_from(Duration(0)), traversed_value),
    *(method("max", (list_of(kind),), kind, highest, traversed_value) for kind in COMPARABLE),
    *(method("min", (list_of(kind),), kind, lowest, traversed_value) for kind in COMPARABLE),
    method("indexOf", (list_of(_ANY), _ANY), INT, index_of, traversed_value),
    method("lastIndexOf", (list_of(_ANY), _ANY), INT, last_index_of, traversed_value),
    method("includes", (DYN, DYN), BOOL, includes, traversed_value),
)
EXTENSION_OVERLOADS = (
    method("slice", (_ELEMENTS, INT, INT), _ELEMENTS, part, _result_cost),
    method("flatten", (list_of(_ELEMENTS),), _ELEMENTS, flatten, _flatten_cost),
    method("flatten", (list_of(DYN), INT), list_of(DYN), flatten, _flatten_cost),
    *(method("sort", (list_of(kind),), list_of(kind), sort, _comparison_cost(0)) for kind in COMPARABLE),
    *(
        method("@sortByAssociatedKeys", (_ELEMENTS, list_of(kind)), _ELEMENTS, sort_by, _comparison_cost(1))
        for kind in COMPARABLE
    ),
    function("lists.range", (INT,), list_of(INT), numbers_below, _result_cost),
    method("reverse", (_ELEMENTS,), _ELEMENTS, lambda elements: elements[::-1], _result_cost),
    method("distinct", (_ELEMENTS,), _ELEMENTS, distinct, _comparison_cost(0)),
)
OVERLOADS = KUBERNETES_OVERLOADS + EXTENSION_OVERLOADS
