"""Quantities are read and written as Kubernetes does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubernetes_rules.quantity import Quantity, format_bytes, parse_quantity


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "1gi", "0x10", "1.2.3", "1Gi1", "--1", "٣", "1" * 65])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_what_is_written_reads_back_as_the_same_number(count: int) -> None:
    assert parse_quantity(format_bytes(count)) == count


def test_bytes_are_written_with_the_largest_binary_suffix_that_divides_them() -> None:
    assert format_bytes(81559 * 2**20) == "81559Mi"
    assert format_bytes(0) == "0"
    assert format_bytes(1000) == "1000"


def test_quantities_are_equal_when_their_numbers_are() -> None:
    assert Quantity.parse("1Gi") == Quantity.parse("1024Mi")
    assert hash(Quantity.parse("1.5")) == hash(Quantity.parse("1500m"))
    assert Quantity.parse("1") != Quantity.parse("2")


def test_numbers_too_far_apart_are_not_added() -> None:
    with pytest.raises(OverflowError, match="too far apart"):
        Quantity.parse("1e2000000000").plus(Quantity.parse("1"))


_TEXTS = st.from_regex(
    r"[+-]?[0-9]{1,20}(\.[0-9]{1,12})?([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?", fullmatch=True
)


@given(_TEXTS)
def test_printing_a_canonical_quantity_changes_nothing(text: str) -> None:
    canonical = str(Quantity.parse(text).plus(Quantity.parse("0")))
    if abs(Quantity.parse(text).value) < 10**21:
        assert str(Quantity.parse(canonical).plus(Quantity.parse("0"))) == canonical


@given(_TEXTS, _TEXTS)
def test_a_sum_less_one_part_is_the_other_part(one: str, other: str) -> None:
    left, right = Quantity.parse(one), Quantity.parse(other)
    assert left.plus(right).minus(right) == left
    assert left.plus(right) == right.plus(left)


@given(st.text(alphabet="0123456789.+-eEinumkKMGTP", max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        quantity = Quantity.parse(text)
    except ValueError:
        return
    assert quantity.minus(quantity).value == 0
