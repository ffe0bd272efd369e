"""String functions behave as in cel-go, and count characters."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubernetes_rules.cel.library_strings import OVERLOADS
from kubernetes_rules.cel.types import CelError
from tests.kubernetes_rules.cel.library_calls import call, cost


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("charAt", ("héllo", 1), "é"),
        ("charAt", ("abc", 3), ""),
        ("indexOf", ("tacocat", "a"), 1),
        ("indexOf", ("tacocat", "a", 2), 5),
        ("indexOf", ("tacocat", "", 99), 7),
        ("indexOf", ("tacocat", "t", 7), -1),
        ("lastIndexOf", ("tacocat", "a"), 5),
        ("lastIndexOf", ("tacocat", "a", 4), 1),
        ("lastIndexOf", ("tacocat", ""), 7),
        ("lastIndexOf", ("tacocat", "t", 7), -1),
        ("lastIndexOf", ("", "a"), -1),
        ("lowerAscii", ("TacoCÆt İ",), "tacocÆt İ"),
        ("upperAscii", ("tacocæt ß",), "TACOCæT ß"),
        ("replace", ("hello hello", "he", "we"), "wello wello"),
        ("replace", ("hello hello", "he", "we", 1), "wello hello"),
        ("replace", ("abc", "", "_"), "_a_b_c_"),
        ("replace", ("abc", "a", "x", 0), "abc"),
        ("split", ("a b c", " "), ("a", "b", "c")),
        ("split", ("a b c", " ", 2), ("a", "b c")),
        ("split", ("a b c", " ", 0), ()),
        ("split", ("a b c", " ", -1), ("a", "b", "c")),
        ("split", ("abc", "", 2), ("a", "bc")),
        ("split", ("", ","), ("",)),
        ("split", ("", ""), ()),
        ("substring", ("tacocat", 4), "cat"),
        ("substring", ("tacocat", 0, 4), "taco"),
        ("trim", (" \t\u00a0\u2003x\u200b\n",), "x\u200b"),
        ("trim", ("\x1cx",), "\x1cx"),
        ("strings.quote", ('a"\n\x01é',), '"a\\"\\n\x01é"'),
        ("join", (("a", "b"),), "ab"),
        ("join", (("a", "b"), ", "), "a, b"),
        ("join", ((), ", "), ""),
    ],
)
def test_strings_are_taken_apart_and_put_together(name: str, arguments: tuple[Any, ...], result: Any) -> None:
    assert call(OVERLOADS, name, *arguments) == result


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("charAt", ("abc", 4)),
        ("charAt", ("abc", -1)),
        ("indexOf", ("abc", "a", -1)),
        ("lastIndexOf", ("abc", "a", -1)),
        ("substring", ("abc", 4)),
        ("substring", ("abc", 2, 1)),
        ("substring", ("abc", 0, 4)),
        ("join", (("a", 1),)),
    ],
)
def test_a_position_outside_or_an_element_that_is_no_string_is_an_error(
    name: str, arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(CelError):
        call(OVERLOADS, name, *arguments)


@given(st.text(max_size=20), st.text(min_size=1, max_size=3))
def test_what_is_split_joins_to_the_same(text: str, separator: str) -> None:
    assert call(OVERLOADS, "join", call(OVERLOADS, "split", text, separator), separator) == text


@given(st.text(max_size=20), st.text(max_size=3))
def test_a_part_is_where_it_was_found(text: str, part: str) -> None:
    for name in ("indexOf", "lastIndexOf"):
        index = call(OVERLOADS, name, text, part)
        assert (index == -1) is (part not in text)
        assert index == -1 or text[index : index + len(part)] == part


@pytest.mark.parametrize(
    ("name", "arguments", "units"),
    [
        ("lowerAscii", ("a" * 11,), 2),
        ("split", ("a" * 11, "b"), 3),
        ("join", (("a" * 11, "b"),), 3),
        ("indexOf", ("é" * 11, "b"), 2),
        ("indexOf", ("a" * 9, "b"), 0),
        ("charAt", ("a" * 99, 1), 1),
        ("format", ("%s" * 6, ("a",) * 6), 2),
    ],
)
def test_strings_cost_by_their_length(name: str, arguments: tuple[Any, ...], units: int) -> None:
    assert cost(OVERLOADS, name, *arguments) == units


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("replace", ("a" * 10_000, "", "b" * 10_000)),
        ("join", (("",) * 10_000, "b" * 10_000)),
        ("format", ("%s" * 7_000, ("b" * 10_000,) * 7_000)),
    ],
)
def test_a_string_that_would_fill_memory_is_an_error(name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(CelError, match="too long"):
        call(OVERLOADS, name, *arguments)
