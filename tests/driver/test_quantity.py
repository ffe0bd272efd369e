"""Quantities are read and written as Kubernetes does."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.quantity import format_bytes, parse_quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("80Gi", 80 * 2**30),
        ("1500m", Decimal("1.5")),
        ("1e3", 1000),
        ("1E", 10**18),
        ("1E2", 100),
        (".5Ki", 512),
        ("-3", -3),
        ("+7k", 7000),
        ("5.", 5),
        ("0.1n", Decimal("1e-9")),
        ("-0.1n", Decimal("-1e-9")),
        ("9999999999E", 2**63 - 1),
    ],
)
def test_a_quantity_is_read_exactly(text: str, number: int | Decimal) -> None:
    assert parse_quantity(text) == number


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
