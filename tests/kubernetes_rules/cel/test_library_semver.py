"""Versions in selectors behave as in Kubernetes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubernetes_rules.cel.library_semver import OVERLOADS, parse
from kubernetes_rules.cel.types import CelError
from kubernetes_rules.cel.values import equal
from tests.kubernetes_rules.cel.library_calls import call, cost

ASCENDING = (
    "1.0.0-1",
    "1.0.0-2",
    "1.0.0-10",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0",
    "1.0.1",
    "1.9.0",
    "1.10.0",
    "2.0.0",
)


@given(st.integers(0, len(ASCENDING) - 1), st.integers(0, len(ASCENDING) - 1))
def test_versions_have_the_order_of_semver_org(one: int, other: int) -> None:
    left, right = parse(ASCENDING[one]), parse(ASCENDING[other])
    assert call(OVERLOADS, "compareTo", left, right) == (one > other) - (one < other)
    assert call(OVERLOADS, "isLessThan", left, right) is (one < other)
    assert call(OVERLOADS, "isGreaterThan", left, right) is (one > other)


def test_build_metadata_makes_no_difference() -> None:
    assert equal(parse("1.0.0+a"), parse("1.0.0+b"))


@pytest.mark.parametrize(
    "text",
    ["", "1", "1.2", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3+", "1.2.3-01", "1.2.3+a..b", "1.2.3.4", "1.2.3-é",
     "18446744073709551616.0.0"],
)  # fmt: skip
def test_what_is_no_strict_version_is_refused(text: str) -> None:
    assert not call(OVERLOADS, "isSemver", text)
    with pytest.raises(CelError):
        call(OVERLOADS, "semver", text)


@pytest.mark.parametrize(
    ("text", "strict"),
    [("v1.2.3", "1.2.3"), ("1", "1.0.0"), ("v01.02", "1.2.0"), ("00.00.00-x", "0.0.0-x"), ("1.2.3", "1.2.3")],
)
def test_a_version_can_be_normalized(text: str, strict: str) -> None:
    assert equal(call(OVERLOADS, "semver", text, True), parse(strict))
    assert call(OVERLOADS, "isSemver", text, True)


def test_a_short_version_with_a_prerelease_is_refused_even_normalized() -> None:
    assert not call(OVERLOADS, "isSemver", "1.2-rc1", True)


def test_the_numbers_of_a_version_can_be_read() -> None:
    version = parse("12.34.56-rc.1")
    assert [call(OVERLOADS, name, version) for name in ("major", "minor", "patch")] == [12, 34, 56]
    assert call(OVERLOADS, "major", parse("18446744073709551615.0.0")) == -1, "a uint64 taken for an int64"


def test_reading_a_version_costs_by_its_length() -> None:
    assert cost(OVERLOADS, "semver", "1.2.3-alpha.1") == 2
