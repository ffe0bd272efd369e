"""Constraints over lists of values, and names of capacities from Kubernetes 1.38 on."""

import pytest

from tests.clusters import AllocationFailed, Allocator, Object
from tools.conformance.allocation.objects import claim, device, device_class, exactly, held, node, published

FULL = "gpu.example.com/memory"


def shared(name: str) -> list[Object]:
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
    assert free[0]["devices"]["results"][0]["consumedCapacity"] == {published_name: "6"}
    assert full is None
    assert (before is None) == (asked != published_name)


def test_a_capacity_that_is_requested_twice_is_an_error_from_1_38_on() -> None:
    request = claim(exactly(capacity={"requests": {"memory": "6", FULL: "6"}}))
    with pytest.raises(AllocationFailed, match="twice"):
        Allocator(shared("memory"), [device_class()], [], (1, 38)).allocate(node(), [request])


def test_a_negative_amount_is_an_error_from_1_38_on_where_the_device_has_the_capacity() -> None:
    request = claim(exactly(capacity={"requests": {"memory": "-1"}}))
    with pytest.raises(AllocationFailed, match="negative"):
        Allocator(shared("memory"), [device_class()], [], (1, 38)).allocate(node(), [request])
    assert Allocator(shared("slots"), [device_class()], [], (1, 38)).allocate(node(), [request]) is None


def test_a_device_that_is_not_shared_any_more_waits_for_its_last_share_from_1_38_on() -> None:
    whole, taken = [published([device("a")])], [held("a", shareID="1", consumedCapacity={"memory": "5"})]
    before, since = (
        Allocator(whole, [device_class()], taken, version).allocate(node(), [claim(exactly())])
        for version in ((1, 37), (1, 38))
    )
    assert before is not None
    assert since is None
