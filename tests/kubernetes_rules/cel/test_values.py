"""Values are equal, ordered and sized as in cel-go."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubernetes_rules.cel.library_quantity import parse
from kubernetes_rules.cel.types import CelError, Uint
from kubernetes_rules.cel.values import compare, equal, optional, size, traversal_units, type_name

NUMBERS = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats())
SCALARS = st.one_of(st.none(), NUMBERS, st.text(max_size=3), st.binary(max_size=3))


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.text(max_size=2), inner, max_size=2)


VALUES = st.recursive(SCALARS, _nested)


@pytest.mark.parametrize(
    ("left", "right", "alike"),
    [
        (1, 1.0, True),
        (1, Uint(1), True),
        (-1, Uint(2**64 - 1), False),
        (2**53 + 1, float(2**53), True),
        (True, 1, False),
        (1, True, False),
        (None, 0, False),
        (None, None, True),
        (math.nan, math.nan, False),
        ("a", b"a", False),
        ((1, 2), (1.0, Uint(2)), True),
        ((1,), (1, 2), False),
        ({"a": 1}, {"a": 1.0}, True),
        ({1: "x"}, {1.0: "x"}, True),
        ({"a": 1}, {"b": 1}, False),
        (optional(1), optional(1.0), True),
        (optional(None), optional(1), False),
        ("a", 1, False),
    ],
)
def test_values_are_equal_by_what_they_mean(left: Any, right: Any, alike: bool) -> None:
    assert equal(left, right) is alike


def test_an_error_within_a_list_or_map_counts_as_equal() -> None:
    assert equal((parse("1"),), (1,))
    assert equal({"a": parse("1")}, {"a": "x"})


@given(VALUES, VALUES)
def test_equality_goes_both_ways(left: Any, right: Any) -> None:
    assert equal(left, right) is equal(right, left)


def test_numbers_of_unlike_types_have_an_order_and_other_values_have_not() -> None:
    assert compare(1, 1.5) == -1
    assert compare(Uint(2**63), 2**63 - 1) == 1
    assert compare(b"b", b"a") == 1
    assert compare(False, True) == -1
    for left, right in (
        (1, "a"),
        (True, 1),
        (None, None),
        ((1,), (1,)),
        (math.nan, 1.0),
        (parse("1"), parse("1")),
    ):
        with pytest.raises(CelError):
            compare(left, right)


def test_sizes_count_characters_bytes_and_elements() -> None:
    values: tuple[Any, ...] = ("é", "é".encode(), (1, 2), {"a": 1}, 5, None)
    assert [size(value) for value in values] == [1, 2, 2, 1, 1, 1]


def test_a_traversal_counts_the_bytes_of_strings_and_each_other_value() -> None:
    assert traversal_units("é" * 10) == 2
    assert traversal_units((1, "a" * 19, (2, 3))) == 4
    assert traversal_units({"a" * 10: 1}) == 2


def test_each_value_has_the_name_of_its_type() -> None:
    values: tuple[Any, ...] = (None, True, 1, Uint(1), 1.0, "", b"", (), {}, parse("1"), optional(1))
    names = [type_name(value) for value in values]
    assert names == [
        "null_type", "bool", "int", "uint", "double", "string", "bytes", "list", "map", "kubernetes.Quantity",
        "optional_type",
    ]  # fmt: skip
