"""Quantities are read and written as Kubernetes does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubernetes_rules.quantity import Format, Quantity, format_bytes, parse_quantity

read = Quantity.parse


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "1gi", "0x10", "1.2.3", "1Gi1", "--1", "٣", "1" * 65])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_what_is_written_reads_back_as_the_same_number(count: int) -> None:
    assert parse_quantity(format_bytes(count)) == count


@pytest.mark.parametrize(
    ("text", "canonical", "form"),
    [
        ("1.5Gi", "1536Mi", Format.BINARY_SI),
        ("1024Mi", "1Gi", Format.BINARY_SI),
        ("0.5Ki", "512", Format.BINARY_SI),
        ("0.1", "100m", Format.DECIMAL_SI),
        ("2000m", "2", Format.DECIMAL_SI),
        ("1e3", "1e3", Format.DECIMAL_EXPONENT),
        ("100e4", "1e6", Format.DECIMAL_EXPONENT),
        ("0", "0", Format.DECIMAL_SI),
        ("-1.5Ki", "-1536", Format.BINARY_SI),
        ("9Ei", "9223372036854775807", Format.BINARY_SI),
        ("9999999999E", "9999999999E", Format.DECIMAL_SI),
        ("0.1Ki", "102400m", Format.BINARY_SI),
        ("0.0001Ki", "102400u", Format.DECIMAL_SI),
        ("1.500", "1.500", Format.DECIMAL_SI),
        ("+7k", "+7k", Format.DECIMAL_SI),
        ("1000E", "1", Format.DECIMAL_SI),
    ],
)
def test_a_quantity_is_printed_as_the_api_server_prints_it(text: str, canonical: str, form: Format) -> None:
    quantity = Quantity.parse(text)
    assert (str(quantity), quantity.format) == (canonical, form)


@pytest.mark.parametrize(
    ("text", "number"), [("Gi", 0), ("-", 0), (".", 0), ("+", 0), ("e3", 0), ("1.Ki", 1024)]
)
def test_a_quantity_is_read_as_leniently_as_the_api_server_reads_it(text: str, number: int) -> None:
    assert Quantity.parse(text).value == number


@pytest.mark.parametrize(
    "text", ["", "Pi", "1 Gi", "1gi", "1.2.3", "1e", "1e+", "1ee3", "--1", "٣", "1e99999999999999999999"]
)
def test_what_the_api_server_takes_for_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        Quantity.parse(text)


def test_a_sum_has_the_format_of_its_first_part_unless_that_is_zero() -> None:
    assert str(read("1Gi").plus(read("1000"))) == "1073742824"
    assert str(read("1Gi").plus(read("1Gi"))) == "2Gi"
    assert str(read("1").plus(read("1Ki"))) == "1025"
    assert str(read("0").plus(read("1Ki"))) == "1Ki"
    assert str(read("1Gi").minus(read("512Mi"))) == "512Mi"


def test_only_a_quantity_that_the_api_server_holds_as_an_int64_is_an_integer() -> None:
    assert read("1Ki").as_int64() == 1024
    assert read("1e3").as_int64() == 1000
    assert read("1.5Ki").as_int64() is None, "1536, but held as a decimal"
    assert read("1000m").as_int64() is None
    assert read("100E").as_int64() is None


def test_a_value_is_rounded_away_from_zero() -> None:
    assert read("1500m").scaled(0) == 2
    assert read("-1500m").scaled(0) == -2
    assert read("1500m").scaled(3) == 1500
    assert read("0.1Ki").scaled(3) == 102400


def test_a_double_is_the_product_of_the_digits_and_the_power_of_ten() -> None:
    assert read("0.3").approximate() == 3 * 0.1
    assert read("1Gi").approximate() == 2.0**30
    assert read("1e400").approximate() == float("inf")


def test_numbers_too_far_apart_are_not_added() -> None:
    with pytest.raises(OverflowError, match="too far apart"):
        read("1e2000000000").plus(read("1"))


_TEXTS = st.from_regex(
    r"[+-]?[0-9]{1,20}(\.[0-9]{1,12})?([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?", fullmatch=True
)


@given(_TEXTS, _TEXTS)
def test_a_sum_less_one_part_is_the_other_part(one: str, other: str) -> None:
    left, right = read(one), read(other)
    assert left.plus(right).minus(right) == left
    assert left.plus(right) == right.plus(left)
