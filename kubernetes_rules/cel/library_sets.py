"""Functions that take lists for sets (cel-go ext/sets.go)."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.cel.library_values import (
    CALL_UNITS,
    Cost,
    check_comparisons,
    function,
    size,
    surely_equal,
)
from kubernetes_rules.cel.types import BOOL, list_of, parameter

_ELEMENTS = list_of(parameter("T"))


def _has(elements: tuple[Any, ...], wanted: Any) -> bool:
    return any(surely_equal(wanted, element) for element in elements)


def contains(elements: tuple[Any, ...], subset: tuple[Any, ...]) -> bool:
    """Whether each element of the subset is among the elements. Raises CelError for very large lists."""
    check_comparisons(len(elements) * len(subset))
    return all(_has(elements, wanted) for wanted in subset)


def intersects(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    """Whether an element is in both. Raises CelError for very large lists."""
    check_comparisons(len(left) * len(right))
    return any(_has(right, wanted) for wanted in left)


def equivalent(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    """Whether both have the same elements, however often."""
    return contains(left, right) and contains(right, left)


def _cost_times(factor: int) -> Cost:
    return lambda arguments, _: CALL_UNITS + size(arguments[0]) * size(arguments[1]) * factor


OVERLOADS = (
    function("sets.contains", (_ELEMENTS, _ELEMENTS), BOOL, contains, _cost_times(1)),
    function("sets.equivalent", (_ELEMENTS, _ELEMENTS), BOOL, equivalent, _cost_times(2)),
    function("sets.intersects", (_ELEMENTS, _ELEMENTS), BOOL, intersects, _cost_times(1)),
)
