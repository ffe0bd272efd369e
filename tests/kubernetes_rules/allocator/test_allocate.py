"""One Allocator is kept while claims come and go; tests/tools/conformance compares the rules."""

from itertools import combinations
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubernetes_rules.allocator.allocate import PoolInvalid
from tests.clusters import AllocationFailed, Allocator, Object
from tests.examples import examples
from tools.conformance.allocation.objects import (
    claim,
    consumes,
    counters,
    device,
    device_class,
    devices,
    exactly,
    first_available,
    held,
    node,
    published,
    wanted,
)
from tools.conformance.allocation.random_cases import random_case


def _of(listed: list[Object], *held: Object) -> Allocator:
    """An allocator of one slice with these devices."""
    return Allocator([published(listed)], [device_class()], held)


def _allocated(asked: Object, allocation: Object) -> Object:
    return {**asked, "status": {"allocation": allocation}}


def _one(allocator: Allocator, asked: Object) -> Object | None:
    results = allocator.allocate(node(), [asked])
    return None if results is None else _allocated(asked, results[0])


@pytest.mark.parametrize("taken", ["memory", "gpu.example.com/memory"])
@pytest.mark.parametrize("name", ["memory", "gpu.example.com/memory"])
def test_a_capacity_is_the_same_with_the_domain_of_its_driver_and_without(name: str, taken: str) -> None:
    listed = [device("a", allowMultipleAllocations=True, capacity={name: {"value": "10"}})]
    holder = held("a", shareID="1", consumedCapacity={taken: "6"})
    allocator = _of(listed, holder)
    asked = claim(exactly(capacity={"requests": {name: "6"}}))

    assert _one(allocator, asked) is None
    allocator.release(holder)
    assert _one(allocator, asked) is not None


def test_what_was_never_assumed_cannot_be_released() -> None:
    allocator = _of(devices(1))
    with pytest.raises(AllocationFailed, match="ns/holder does not hold device"):
        allocator.release(held("gpu-0"))


def test_shares_have_ids_of_their_own() -> None:
    listed = [device("a", allowMultipleAllocations=True, capacity={"memory": {"value": "10"}})]
    asked = [exactly(name, capacity={"requests": {"memory": "2"}}) for name in ("r0", "r1")]
    results = _of(listed).allocate(node(), [claim(*asked)])
    assert results is not None
    ids = {result["shareID"] for result in results[0]["devices"]["results"]}
    assert len(ids) == 2


def test_new_labels_of_a_node_are_noticed() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    slices = [published(devices(1), nodeSelector={"nodeSelectorTerms": [term]})]
    allocator = Allocator(slices, [device_class()], [])
    assert allocator.allocate(node(zone="b"), [claim(exactly())]) is None
    assert allocator.allocate(node(zone="a"), [claim(exactly())]) is not None


@pytest.mark.parametrize(
    "malformed", [{}, {"spec": {}}, {"spec": {"driver": "d", "pool": None}}, {"spec": 7}]
)
def test_a_malformed_slice_is_refused(malformed: Object) -> None:
    with pytest.raises(AllocationFailed, match="malformed"):
        Allocator([malformed], [], [])


@pytest.mark.parametrize(
    ("amount", "reason"), [("much", "not a quantity"), ("1e30001", "a quantity has more than 30000 digits")]
)
@pytest.mark.parametrize("where", ["capacity", "consumesCounters", "sharedCounters"])
def test_an_amount_that_cannot_be_counted_with_makes_only_its_pool_invalid(
    where: str, amount: str, reason: str
) -> None:
    wrong: Object = {
        "capacity": {"devices": [device("a", capacity={"memory": {"value": amount}})]},
        "consumesCounters": {"devices": [device("a", consumesCounters=[consumes("set", memory=amount)])]},
        "sharedCounters": {"sharedCounters": [{"name": "set", "counters": counters(memory=amount)}]},
    }[where]
    bad = published(**wrong, name="bad", pool="bad")
    allocator = Allocator([bad, published(devices(1), pool="good")], [device_class()], [])
    found = _one(allocator, claim(exactly()))
    assert found is not None
    [result] = found["status"]["allocation"]["devices"]["results"]
    assert result["device"] == "gpu-0"
    with pytest.raises(PoolInvalid, match=f"pool gpu.example.com/bad is invalid: .*{reason}"):
        _one(allocator, claim(exactly(count=2)))


def test_devices_that_only_their_names_tell_apart_are_not_tried_in_every_combination() -> None:
    listed = [
        device(f"gpu-{index}", attributes={"uuid": {"string": str(index)}, "numa": {"int": index % 2}})
        for index in range(31)
    ]
    allocator = _of(listed)
    constraint = [{"matchAttribute": "gpu.example.com/numa"}]
    assert allocator.allocate(node(), [claim(exactly(count=17), constraints=constraint)]) is None
    both = claim(exactly(count=16), exactly("r1", count=16))
    assert allocator.allocate(node(), [both]) is None


def test_requests_that_take_the_same_devices_in_another_order_are_not_tried_again() -> None:
    listed = [device(f"gpu-{index}", capacity={"memory": {"value": str(index)}}) for index in range(10)]
    asked = [exactly(f"r{index}") for index in range(8)]
    impossible = exactly("last", capacity={"requests": {"cores": "1"}})
    allocator = _of(listed)
    assert allocator.allocate(node(), [claim(*asked, impossible)]) is None


def _partitions(gpus: int, names: tuple[str, ...]) -> list[Object]:
    """Slices of GPUs, each with a partition for each pair of its counters, as if they were places."""
    sets = [{"name": f"gpu-{n}", "counters": counters(**dict.fromkeys(names, "1"))} for n in range(gpus)]
    listed = [
        device(
            f"gpu-{n}-{one}{other}",
            attributes={"gpu": {"int": n}},
            consumesCounters=[consumes(f"gpu-{n}", **{one: "1", other: "1"})],
        )
        for n in range(gpus)
        for one, other in combinations(names, 2)
    ]
    return [published(name="c", count=2, sharedCounters=sets), published(listed, name="d", count=2)]


def _constrained(kind: str, *requests: Object) -> Object:
    return claim(*requests, constraints=[{kind: "gpu.example.com/gpu"}])


@pytest.mark.parametrize(
    ("fits", "one_too_many"),
    [
        ([claim(exactly(count=8))], [claim(exactly(count=9))]),
        ([claim(*(exactly(f"r{n}") for n in range(8)))], [claim(*(exactly(f"r{n}") for n in range(9)))]),
        (
            [claim(exactly(), name=f"c{n}") for n in range(8)],
            [claim(exactly(), name=f"c{n}") for n in range(9)],
        ),
        (
            [_constrained("matchAttribute", exactly(count=2))],
            [_constrained("matchAttribute", exactly(count=3))],
        ),
        (
            [_constrained("distinctAttribute", exactly(count=3), exactly("r1"))],
            [_constrained("distinctAttribute", exactly(count=4), exactly("r1"))],
        ),
        (
            [claim(exactly(count=7), first_available("r1", wanted(count=2), wanted(count=1)))],
            [claim(exactly(count=7), first_available("r1", wanted(count=3), wanted(count=2)))],
        ),
    ],
    ids=["devices", "requests", "claims", "of one GPU", "of different GPUs", "alternatives"],
)
def test_one_partition_too_many_is_refused_without_trying_all_ways(
    fits: list[Object], one_too_many: list[Object]
) -> None:
    allocator = Allocator(_partitions(4, ("a", "b", "c", "d", "e")), [device_class()], [])
    assert allocator.allocate(node(), fits) is not None
    assert allocator.allocate(node(), one_too_many) is None


def test_a_search_with_too_many_ways_to_try_is_given_up_with_an_error() -> None:
    # What devices that consume counters of two sets leave each other is not looked ahead to.
    sets = [{"name": f"set-{n}", "counters": counters(memory="1")} for n in range(12)]
    listed = [
        device(f"{one}-{other}", consumesCounters=[consumes(f"set-{n}", memory="1") for n in (one, other)])
        for one, other in combinations(range(11), 2)
    ]
    slices = [published(name="c", count=2, sharedCounters=sets), published(listed, name="d", count=2)]
    with pytest.raises(AllocationFailed, match="too many ways to try on node node-1"):
        Allocator(slices, [device_class()], []).allocate(node(), [claim(exactly(count=6))])


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(min_value=0, max_value=2**32))
def test_assuming_and_releasing_leaves_every_answer_as_it_was(seed: int) -> None:
    case = random_case(Random(seed))  # noqa: S311 - no secret
    allocator = Allocator(case["slices"], case["classes"], case["allocated"])

    def answer() -> list[Object] | str:
        try:
            return allocator.allocate(case["node"], case["claims"]) or "none"
        except AllocationFailed as error:
            return str(error)

    def devices_of(found: list[Object] | str) -> list[list[Any]] | str:
        """Without the IDs of shares, which are new each time."""
        if isinstance(found, str):
            return found
        listed = [one["devices"].get("results", ()) for one in found]
        return [[(one["device"], one.get("consumedCapacity")) for one in results] for results in listed]

    before = answer()
    results = [] if isinstance(before, str) else before
    taken = [_allocated(one, result) for one, result in zip(case["claims"], results, strict=False)]
    for one in taken:
        allocator.assume(one)
    answer()
    for one in reversed(taken):
        allocator.release(one)
    assert devices_of(answer()) == devices_of(before)


def test_nodes_that_publish_the_same_objects_have_devices_of_their_own() -> None:
    listed = devices(2)
    slices = [published(listed, nodeName=name, pool=name) for name in ("node-1", "node-2")]
    allocator = Allocator(slices, [device_class()], [])
    asked = claim(exactly(count=2))
    pools = set()
    for name in ("node-1", "node-2"):
        results = allocator.allocate({"metadata": {"name": name}}, [asked])
        assert results is not None
        pools.add(results[0]["devices"]["results"][0]["pool"])
        allocator.assume(_allocated(asked, results[0]))
        assert allocator.allocate({"metadata": {"name": name}}, [asked]) is None
    assert pools == {"node-1", "node-2"}


def test_the_same_slices_can_be_tried_with_other_claims_and_without_taints() -> None:
    listed = [device("gpu-0"), device("gpu-1", taints=[{"key": "sick", "effect": "NoSchedule"}])]
    holder = held("gpu-0")
    allocator = _of(listed, holder)
    assert _one(allocator, claim(exactly())) is None
    alone = allocator.with_claims([])
    assert _one(alone, claim(exactly())) is not None
    assert _one(alone, claim(exactly(count=2))) is None
    assert _one(allocator.with_claims([], taints=False), claim(exactly(count=2))) is not None
    assert _one(allocator, claim(exactly())) is None
