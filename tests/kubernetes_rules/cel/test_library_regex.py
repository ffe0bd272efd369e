"""Searches in selectors use RE2, as in Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from kubernetes_rules.cel.library_regex import OVERLOADS
from kubernetes_rules.cel.types import CelError
from tests.kubernetes_rules.cel.library_calls import call, cost


@pytest.mark.parametrize(
    ("text", "pattern", "match"), [("abc 123", "[0-9]+", "123"), ("abc", "x", ""), ("GPU-é", r"\pL+$", "é")]
)
def test_the_first_match_is_found(text: str, pattern: str, match: str) -> None:
    assert call(OVERLOADS, "find", text, pattern) == match


@pytest.mark.parametrize(
    ("arguments", "matches"),
    [
        (("123 abc 456", "[0-9]*"), ("123", "", "", "", "", "456")),
        (("123 abc 456", "[0-9]+", 1), ("123",)),
        (("123 abc 456", "[0-9]+", 0), ()),
        (("123 abc 456", "[0-9]+", -1), ("123", "456")),
        (("ab", ""), ("", "", "")),
        (("x", "y"), ()),
    ],
)
def test_all_matches_are_found(arguments: tuple[Any, ...], matches: tuple[str, ...]) -> None:
    assert call(OVERLOADS, "findAll", *arguments) == matches


@pytest.mark.parametrize("pattern", ["(", "a**", "(?=a)", r"\1", r"\C", "a{1001}", "(a{500}){500}"])
def test_what_is_no_expression_in_kubernetes_is_an_error(pattern: str) -> None:
    with pytest.raises(CelError):
        call(OVERLOADS, "find", "a", pattern)


def test_a_nested_repetition_takes_no_exponential_time() -> None:
    assert call(OVERLOADS, "find", "a" * 5000, "(a+)+$") == "a" * 5000
    assert call(OVERLOADS, "find", "a" * 5000 + "b", "(a+)+$") == ""


def test_a_search_costs_by_text_and_expression() -> None:
    assert cost(OVERLOADS, "find", "a" * 20, "[a-z]+xy") == 3 * 2
