"""No set of victims that is enough costs less than the one that is chosen."""

from itertools import chain, combinations
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubernetes_rules.preemption import victims as victims_module
from kubernetes_rules.preemption.units import Budgets, Cost, Unit, cost_of, units_of
from kubernetes_rules.preemption.victims import Victims, cheapest_victims, without
from tests.clusters import AllocationFailed, Allocator, Object
from tests.examples import examples
from tools.conformance.allocation import objects as api
from tools.conformance.area import Case
from tools.conformance.victims.area import units_that_may_go
from tools.conformance.victims.random_cases import pod, random_case, used_by


def _fits(case: Case, allocator: Allocator, going: tuple[Unit, ...]) -> bool | None:
    """Whether the claims fit once these have gone; None if the allocator fails."""
    with without(allocator, [claim for unit in going for claim in unit.claims]):
        try:
            return allocator.allocate(case["node"], case["wanted"]) is not None
        except AllocationFailed:
            return None


def _cheapest(case: Case, units: list[Unit], lacks: Object, frees: list[Object]) -> Cost | None:
    """By brute force over all sets."""
    allocator = Allocator(case["slices"], case["classes"], case["claims"])
    budgets = Budgets(case["budgets"])
    numbers = range(len(units))
    costs = [
        cost_of([units[n] for n in some], budgets)
        for some in chain.from_iterable(combinations(numbers, count) for count in range(len(units) + 1))
        if all(sum(frees[n].get(name, 0) for n in some) >= amount for name, amount in lacks.items())
        and _fits(case, allocator, tuple(units[n] for n in some))
    ]
    return min(costs, default=None)


@settings(deadline=None, max_examples=examples(250))
@given(st.integers(min_value=0, max_value=2**32))
def test_the_cheapest_set_goes_on_any_small_node(seed: int) -> None:
    rng = Random(seed)  # noqa: S311 - no secret
    case = random_case(rng)
    units = units_that_may_go(case)[:7]
    lacks = {"cpu": rng.randint(1, 5)} if rng.random() < 0.25 else {}
    frees = [{"cpu": rng.randrange(4)} for _ in units] if lacks else []
    allocator = Allocator(case["slices"], case["classes"], case["claims"])
    if None in (_fits(case, allocator, going) for going in ((), tuple(units))):
        return
    found = cheapest_victims(
        allocator, case["node"], case["wanted"], units, Budgets(case["budgets"]), lacks, frees
    )
    cheapest = _cheapest(case, units, lacks, frees)
    assert (None if found is None else found.cost) == cheapest
    assert found is None or found.is_exact


def _many(count: int, **fields: Any) -> tuple[Allocator, list[Unit]]:
    """A node with ``count`` GPUs, each held by a pod of a priority of its own."""
    pods = [pod(f"p{n}", (n * 7) % count) for n in range(count)]
    claims = [used_by(api.held(f"gpu-{n}", name=f"c{n}"), one) for n, one in enumerate(pods)]
    slices = [api.published(api.devices(count, **fields))]
    return Allocator(slices, [api.device_class()], claims), list(units_of(pods, claims).on_node["node-1"])


def _wanted(count: int) -> list[Object]:
    return [api.claim(api.exactly(), name=f"w{n}") for n in range(count)]


def _priorities(found: Victims | None) -> list[int]:
    assert found is not None
    return sorted(unit.priority for unit in found.units)


def test_claims_for_half_of_sixteen_gpus_are_answered_exactly() -> None:
    allocator, units = _many(16)
    found = cheapest_victims(allocator, api.node(), _wanted(8), units, Budgets())

    assert _priorities(found) == list(range(8))
    assert found is not None
    assert found.is_exact


def test_a_search_that_is_given_up_leaves_no_unit_that_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(victims_module, "MOST_STEPS", 3)
    allocator, units = _many(8)
    found = cheapest_victims(allocator, api.node(), _wanted(4), units, Budgets())

    assert found is not None
    assert not found.is_exact
    assert _priorities(found) == [0, 1, 2, 3]
