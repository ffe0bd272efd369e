"""List functions behave as in Kubernetes and cel-go."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubernetes_rules.cel.library_lists import OVERLOADS
from kubernetes_rules.cel.library_quantity import parse
from kubernetes_rules.cel.times import Duration, Timestamp
from kubernetes_rules.cel.types import CelError, Uint
from tests.kubernetes_rules.cel.library_calls import call, cost

NUMBERS = st.lists(st.integers(-5, 5), max_size=80).map(tuple)


def run(name: str, *arguments: Any) -> Any:
    return call(OVERLOADS, name, *arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("isSorted", (("a", "b", "b"),), True),
        ("isSorted", ((2, 1),), False),
        ("isSorted", ((),), True),
        ("sum", ((1, 2, 3),), 6),
        ("sum", ((0.5, 1.0),), 1.5),
        ("sum", ((Uint(1), Uint(2)),), 3),
        ("sum", ((),), 0),
        ("sum", ((Duration(1), Duration(2)),), Duration(3)),
        ("max", ((Timestamp(1), Timestamp(2)),), Timestamp(2)),
        ("sort", ((Duration(2), Duration(1)),), (Duration(1), Duration(2))),
        ("min", ((2, 1, 3),), 1),
        ("max", (("a", "c", "b"),), "c"),
        ("min", ((1.0, math.nan),), 1.0),
        ("indexOf", ((1, 2, 2, 3), 2), 1),
        ("lastIndexOf", ((1, 2, 2, 3), 2), 2),
        ("indexOf", ((1, 2), 2.0), 1),
        ("indexOf", ((parse("1"),), 1), -1),
        ("includes", ((1, 2), 2), True),
        ("includes", ("a", "a"), True),
        ("includes", ("a", 1), False),
        ("includes", (True, 1), False),
        ("slice", ((1, 2, 3, 4), 1, 3), (2, 3)),
        ("flatten", (((1,), (2, 3)),), (1, 2, 3)),
        ("flatten", ((1, ((2,), 3)), 1), (1, (2,), 3)),
        ("flatten", ((1, ((2,), 3)), 2), (1, 2, 3)),
        ("flatten", ((1, ((2,), 3)), 0), (1, ((2,), 3))),
        ("lists.range", (3,), (0, 1, 2)),
        ("reverse", ((1, 2, 3),), (3, 2, 1)),
        ("distinct", ((1, 2.0, 2, 1, True),), (1, 2.0, True)),
        ("sort", (("b", "a"),), ("a", "b")),
        ("@sortByAssociatedKeys", (("a", "b", "c"), (3, 1, 2)), ("b", "c", "a")),
    ],
)
def test_lists_are_searched_and_reordered(name: str, arguments: tuple[Any, ...], result: Any) -> None:
    assert run(name, *arguments) == result


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("min", ((),)),
        ("max", ((),)),
        ("sum", ((2**63 - 1, 1),)),
        ("sum", ((Uint(2**64 - 1), Uint(1)),)),
        ("sum", ((1, "a"),)),
        ("sum", ((Duration(2**63 - 1), Duration(1)),)),
        ("max", ((1, None),)),
        ("slice", ((1, 2), 1, 3)),
        ("slice", ((1, 2), -1, 1)),
        ("slice", ((1, 2), 2, 1)),
        ("flatten", (((1,),), -1)),
        ("lists.range", (-1,)),
        ("lists.range", (1_000_001,)),
        ("sort", ((1, "a"),)),
        ("@sortByAssociatedKeys", ((1, 2), (1,))),
    ],
)
def test_what_has_no_answer_is_an_error(name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(CelError):
        run(name, *arguments)


@given(NUMBERS)
def test_a_sorted_list_is_sorted_and_has_the_same_elements(numbers: tuple[int, ...]) -> None:
    assert run("sort", numbers) == tuple(sorted(numbers))
    assert run("isSorted", run("sort", numbers))


@given(NUMBERS)
def test_elements_stay_with_their_keys(numbers: tuple[int, ...]) -> None:
    pairs = tuple((number, place) for place, number in enumerate(numbers))
    ordered = run("@sortByAssociatedKeys", pairs, numbers)
    assert sorted(ordered) == sorted(pairs)
    assert [number for number, _ in ordered] == sorted(numbers)


@given(NUMBERS)
def test_distinct_elements_are_each_once_in_the_order_they_came(numbers: tuple[int, ...]) -> None:
    assert run("distinct", numbers) == tuple(dict.fromkeys(numbers))


def test_more_than_twelve_equal_keys_leave_the_order_that_go_leaves() -> None:
    numbers = tuple(range(16))
    ordered = run("@sortByAssociatedKeys", numbers, tuple(number % 3 for number in numbers))
    assert ordered == (6, 15, 12, 3, 0, 9, 4, 7, 10, 13, 1, 8, 5, 11, 2, 14)


@pytest.mark.parametrize(
    ("name", "arguments", "units"),
    [
        ("sum", ((1, 2, 3),), 3),
        ("max", (("a" * 25, "b"),), 2),
        ("includes", ("a" * 25, "b"), 2),
        ("slice", ((1, 2, 3), 0, 2), 13),
        ("flatten", (((1,), (2,)), 3), 17),
        ("sort", ((3, 1, 2),), 29),
        ("sort", (("a", "b"),), 19),
        ("@sortByAssociatedKeys", ((1, 2), ("a", "b")), 19),
        ("distinct", ((),), 11),
    ],
)
def test_lists_cost_by_their_elements(name: str, arguments: tuple[Any, ...], units: int) -> None:
    assert cost(OVERLOADS, name, *arguments) == units
