"""Constraints over lists of values, and names of capacities from Kubernetes 1.38 on."""

from __future__ import annotations

from typing import Any

import pytest

from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator
from tools.conformance.allocation.objects import (
    claim,
    device,
    device_class,
    exactly,
    held,
    node,
    published,
)

Json = dict[str, Any]
ATTRIBUTE = "gpu.example.com/near"
FULL = "gpu.example.com/memory"


def chosen(devices: dict[str, Json], count: int, constraint: str) -> list[str] | None:
    """The names of so many devices with these attributes that satisfy a constraint."""
    listed = [device(name, attributes={"near": value}) for name, value in devices.items()]
    asked = claim(exactly(count=count), constraints=[{constraint: ATTRIBUTE}])
    found = Allocator([published(listed)], [device_class()], []).allocate(node(), [asked])
    return None if found is None else [one["device"] for one in found[0]["devices"]["results"]]


def test_lists_match_if_all_have_a_value_in_common() -> None:
    rows: dict[str, Json] = {
        "a": {"ints": [0, 1]},
        "b": {"ints": [1, 2]},
        "c": {"ints": [2, 0]},
        "d": {"ints": [5, 1]},
    }

    # Any two of a, b and c have a value in common, and all three have none.
    assert chosen(rows, 3, "matchAttribute") == ["a", "b", "d"]
    assert chosen(rows, 4, "matchAttribute") is None


def test_a_single_value_counts_as_a_list_of_one() -> None:
    rows: dict[str, Json] = {"a": {"strings": ["x", "y"]}, "b": {"string": "z"}, "c": {"string": "y"}}
    assert chosen(rows, 2, "matchAttribute") == ["a", "c"]


def test_values_of_different_types_never_match() -> None:
    rows: dict[str, Json] = {"a": {"ints": [1]}, "b": {"bools": [True]}, "c": {"strings": ["1"]}}
    assert chosen(rows, 2, "matchAttribute") is None
    assert chosen(rows, 3, "distinctAttribute") == ["a", "b", "c"]


def test_distinct_lists_have_no_value_in_common() -> None:
    rows: dict[str, Json] = {
        "a": {"ints": [0, 1]},
        "b": {"ints": [1, 2]},
        "c": {"ints": [2, 3]},
        "d": {"int": 0},
    }
    assert chosen(rows, 2, "distinctAttribute") == ["a", "c"]
    assert chosen(rows, 3, "distinctAttribute") is None


def shared(name: str) -> list[Json]:
    return [published([device("a", allowMultipleAllocations=True, capacity={name: {"value": "10"}})])]


@pytest.mark.parametrize("published_name", ["memory", FULL])
@pytest.mark.parametrize("asked", ["memory", FULL])
def test_a_capacity_can_be_requested_with_or_without_the_domain_from_1_38_on(
    asked: str, published_name: str
) -> None:
    request = claim(exactly(capacity={"requests": {asked: "6"}}))
    taken = [held("a", shareID="1", consumedCapacity={"memory": "5"})]

    free, full, before = (
        Allocator(shared(published_name), [device_class()], allocated, version).allocate(node(), [request])
        for allocated, version in (([], (1, 38)), (taken, (1, 38)), ([], (1, 37)))
    )

    assert free is not None
    assert free[0]["devices"]["results"][0]["consumedCapacity"] == {FULL: "6"}
    assert full is None
    assert (before is None) == (asked != published_name)


def test_a_capacity_of_another_domain_is_another_capacity() -> None:
    request = claim(exactly(capacity={"requests": {"example.org/memory": "6"}}))
    assert Allocator(shared("memory"), [device_class()], [], (1, 38)).allocate(node(), [request]) is None


def test_a_capacity_that_is_requested_twice_is_an_error_from_1_38_on() -> None:
    request = claim(exactly(capacity={"requests": {"memory": "6", FULL: "6"}}))
    with pytest.raises(AllocationFailed, match="twice"):
        Allocator(shared("memory"), [device_class()], [], (1, 38)).allocate(node(), [request])
