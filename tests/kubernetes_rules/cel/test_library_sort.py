"""GoSort gives an ascending order of all positions, whatever the pattern of the keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubernetes_rules.cel.library_lists import GoSort, sorted_order


def is_less(left: int, right: int) -> bool:
    return left < right


def check(keys: tuple[int, ...]) -> None:
    order = sorted_order(keys, is_less)
    assert sorted(order) == list(range(len(keys)))
    assert [keys[position] for position in order] == sorted(keys)


@given(st.lists(st.integers(0, 20), max_size=200).map(tuple))
def test_any_keys_are_sorted(keys: tuple[int, ...]) -> None:
    check(keys)


@pytest.mark.parametrize(
    "keys",
    [
        tuple(range(300)),
        tuple(range(300, 0, -1)),
        (*range(150), *range(150, 0, -1)),
        (*range(299), 0),
        (0,) * 300,
        tuple(place * 7919 % 301 for place in range(300)),
        tuple(place % 2 for place in range(300)),
    ],
)
def test_keys_in_a_pattern_are_sorted(keys: tuple[int, ...]) -> None:
    check(keys)


@given(st.lists(st.integers(0, 20), max_size=100).map(tuple), st.integers(0, 10))
def test_the_way_out_of_bad_choices_sorts_a_part_too(keys: tuple[int, ...], first: int) -> None:
    first = min(first, len(keys))
    sorting = GoSort(keys, is_less)
    sorting.heap_sort(first, len(keys))
    ordered = [keys[position] for position in sorting.order]
    assert ordered == [*keys[:first], *sorted(keys[first:])]
