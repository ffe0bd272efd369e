"""Formatted strings look as those of Kubernetes do."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubernetes_rules.cel.library_ip import parse_ip
from kubernetes_rules.cel.library_strings import clauses, format_values, shortest_double
from kubernetes_rules.cel.times import Duration, Timestamp
from kubernetes_rules.cel.types import INT, CelError, Uint

SPANS = '[duration("-0.000000001s"), timestamp("1970-01-01T01:30:00.1+01:30")]'


@pytest.mark.parametrize(
    ("text", "values", "result"),
    [
        ("%s, %s", ("a", 1), "a, 1"),
        ("100%%", (), "100%"),
        ("%d %d", (-5, Uint(5)), "-5 5"),
        ("%f", (1234567.891,), "1,234,567.891000"),
        ("%.0f", (2.5,), "2"),
        ("%.2f", (-0.001,), "-0.00"),
        ("%f", (-0.0,), "0.000000"),
        ("%f %f", ("NaN", "-Infinity"), "NaN -∞"),
        ("%e", (1234567.891,), "1.234568\u00d710⁰⁶"),
        ("%.20e|%.3e", (0.1, math.inf), "      1.000000\u00d710⁻⁰¹|  ∞"),
        ("%b %b", (-5, True), "-101 1"),
        ("%x %X %x", (-255, "é", b"\xff"), "-ff C3A9 ff"),
        ("%o", (8,), "10"),
        ("%s %s", (1e6, 0.5), "1e+06 0.5"),
        (
            "%s",
            ((1, "a\n", b"b", 2.5, None, True, math.inf),),
            '[1, "a\\n", b"b", 2.500000, null, true, "+Inf"]',
        ),
        ("%s", ({"b": 1, "a": (), 2: "x"},), '{"a":[], "b":1, 2:"x"}'),
        ("%s", (INT,), "int"),
        ("%s %s", (Duration(1_500_000_000), Timestamp(0)), "1.5s 1970-01-01T00:00:00Z"),
        ("%s", ((Duration(-1), Timestamp(10**8, 5400)),), SPANS),
        ("%s", (("\u200b\x01",),), '["\\u200b\\x01"]'),
        ("%.3s", ("abcdef",), "abcdef"),
    ],
)
def test_values_are_formatted(text: str, values: tuple[Any, ...], result: str) -> None:
    assert format_values(text, values) == result


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("%", (1,)),
        ("%.", (1.0,)),
        ("%.f", (1.0,)),
        ("%y", (1,)),
        ("%5d", (1,)),
        ("%s %s", ("a",)),
        ("%d", (1.0,)),
        ("%d", (True,)),
        ("%f", (1,)),
        ("%e", ("x",)),
        ("%b", ("a",)),
        ("%x", (True,)),
        ("%o", (1.0,)),
        ("%s", (b"\xff",)),
        ("%s", (parse_ip("1.2.3.4"),)),
        ("%s", ((parse_ip("1.2.3.4"),),)),
        ("%s", ({1.5: 1},)),
        ("%.99999999f", (1.0,)),
    ],
)
def test_a_wrong_clause_or_value_is_an_error(text: str, values: tuple[Any, ...]) -> None:
    with pytest.raises(CelError):
        format_values(text, values)


def test_the_clauses_of_a_text_can_be_looked_at_alone() -> None:
    assert [(clause.before, clause.verb, clause.precision) for clause in clauses("a%.2f%%%s!", 2)] == [
        ("a", "f", 2),
        ("%", "s", None),
        ("!", "", None),
    ]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_is_written_with_all_its_digits(value: float) -> None:
    assert float(shortest_double(value)) == value


@given(st.text())
def test_a_text_without_a_clause_stays_as_it_is(text: str) -> None:
    assert format_values(text.replace("%", "%%"), ()) == text
