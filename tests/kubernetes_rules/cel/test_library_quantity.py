"""Quantities in selectors behave as in Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from kubernetes_rules.cel.library_quantity import OVERLOADS, Quantity, parse
from kubernetes_rules.cel.types import CelError
from kubernetes_rules.cel.values import equal
from tests.kubernetes_rules.cel.library_calls import call, cost


def run(name: str, *arguments: Any) -> Any:
    return call(OVERLOADS, name, *arguments)


def test_quantities_are_compared_by_their_numbers() -> None:
    assert run("isGreaterThan", parse("80Gi"), parse("40Gi"))
    assert run("isLessThan", parse("1500m"), parse("2"))
    assert run("compareTo", parse("1Gi"), parse("1024Mi")) == 0
    assert equal(parse("1Gi"), parse("1024Mi"))


def test_a_sum_equals_a_quantity_only_from_the_left() -> None:
    total = run("add", parse("1"), 1)
    assert equal(total, parse("2"))
    with pytest.raises(CelError):
        equal(parse("2"), total)


def test_a_quantity_equals_nothing_else() -> None:
    with pytest.raises(CelError):
        equal(parse("1"), 1)
    assert not equal(1, parse("1"))


def test_integers_and_quantities_are_added_and_subtracted_exactly() -> None:
    assert run("asInteger", run("sub", parse("1Gi"), parse("1Mi"))) == 2**30 - 2**20
    assert run("asInteger", run("add", parse("1Gi"), -1)) == 2**30 - 1


def test_only_what_kubernetes_holds_as_an_integer_is_one() -> None:
    assert run("isInteger", parse("1Ki"))
    assert not run("isInteger", parse("1.5Ki"))
    with pytest.raises(CelError, match="cannot convert"):
        run("asInteger", parse("100m"))


@pytest.mark.parametrize(("text", "sign"), [("-1m", -1), ("0", 0), ("1n", 1)])
def test_the_sign_of_a_quantity_is_told(text: str, sign: int) -> None:
    assert run("sign", parse(text)) == sign


def test_a_double_is_approximate() -> None:
    assert run("asApproximateFloat", parse("1500m")) == 1.5


def test_what_is_no_quantity_is_an_error() -> None:
    assert not run("isQuantity", "80GB")
    with pytest.raises(CelError, match="is not a quantity"):
        run("quantity", "80GB")


def test_a_sum_that_would_fill_memory_is_an_error() -> None:
    with pytest.raises(CelError):
        run("add", parse("1e2000000000"), 1)


def test_reading_a_quantity_costs_by_its_length() -> None:
    assert cost(OVERLOADS, "quantity", "12345678901Ki") == 2
    assert cost(OVERLOADS, "compareTo", parse("1"), parse("2")) == 1
    assert isinstance(run("quantity", "1"), Quantity)
