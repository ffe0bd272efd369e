"""Lists taken for sets behave as in cel-go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubernetes_rules.cel.library_lists import SET_OVERLOADS
from kubernetes_rules.cel.types import CelError
from tests.kubernetes_rules.cel.library_calls import call, cost

LISTS = st.lists(st.integers(0, 5), max_size=6).map(tuple)


@given(LISTS, LISTS)
def test_lists_are_compared_as_sets(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    assert call(SET_OVERLOADS, "sets.contains", left, right) is (set(right) <= set(left))
    assert call(SET_OVERLOADS, "sets.equivalent", left, right) is (set(right) == set(left))
    assert call(SET_OVERLOADS, "sets.intersects", left, right) is bool(set(right) & set(left))


def test_numbers_of_unlike_types_are_one_element_and_booleans_are_none() -> None:
    assert call(SET_OVERLOADS, "sets.contains", (1, 2), (1.0,))
    assert not call(SET_OVERLOADS, "sets.contains", (1,), (True,))


def test_each_element_meets_each() -> None:
    assert cost(SET_OVERLOADS, "sets.contains", (1, 2, 3), (1, 2)) == 7
    assert cost(SET_OVERLOADS, "sets.equivalent", (1, 2, 3), (1, 2)) == 13


@pytest.mark.parametrize("name", ["sets.contains", "sets.equivalent", "sets.intersects"])
def test_comparisons_beyond_the_limit_of_costs_are_not_begun(name: str) -> None:
    numbers = tuple(range(2000))
    with pytest.raises(CelError, match="too many"):
        call(SET_OVERLOADS, name, numbers, numbers)
