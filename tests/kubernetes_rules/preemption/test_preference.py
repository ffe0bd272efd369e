"""Of two sets of victims the one is preferred that kube-scheduler prefers."""

from __future__ import annotations

from typing import Any

import pytest

from kubernetes_rules.preemption.preference import Budgets, cost_of, importance
from kubernetes_rules.preemption.units import Unit, units_of
from tools.conformance.room.random_rooms import budget, pod

Json = dict[str, Any]


def _units(*pods: Json) -> list[Unit]:
    return list(units_of(pods, []).on_node["node-1"])


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ([pod("a", 9)], [pod("a", 1, app="kept")]),  # no budget is violated
        ([pod("a", 1), pod("b", 1)], [pod("a", 2)]),  # a lower highest priority
        ([pod("a", 5), pod("b", 1)], [pod("a", 5), pod("b", 3)]),  # a lower sum
        ([pod("a", -5)], [pod("a", -5), pod("b", -5)]),  # fewer pods of a negative priority
        ([pod("a", 5, start_day=9)], [pod("a", 5, start_day=2)]),  # a later start
        ([pod("a", 5, 9), pod("b", 1, 1)], [pod("a", 5, 8), pod("b", 1, 3)]),  # of the highest priority
    ],
)
def test_the_better_set_costs_less(better: list[Json], worse: list[Json]) -> None:
    budgets = Budgets([budget("kept", 0)])

    assert cost_of(_units(*better), budgets) < cost_of(_units(*worse), budgets)


def test_only_pods_beyond_what_a_budget_allows_violate_it() -> None:
    units = _units(*(pod(name, app="kept") for name in "abc"))

    assert [cost_of(units[:n], Budgets([budget("kept", 2)])).violations for n in range(4)] == [0, 0, 0, 1]


def test_an_eviction_that_a_budget_has_counted_does_not_count_again() -> None:
    counted = budget("kept", 0)
    counted["status"]["disruptedPods"] = {"a": "2026-01-01T00:00:00Z"}

    assert cost_of(_units(pod("a", app="kept")), Budgets([counted])).violations == 0


def test_a_pod_with_two_budgets_cannot_be_evicted() -> None:
    everyone = {**budget("kept", 5), "metadata": {"name": "all", "namespace": "ns"}}

    assert cost_of(_units(pod("a", app="kept")), Budgets([budget("kept", 5), everyone])).violations == 1


def test_a_budget_that_its_controller_has_not_seen_allows_nothing() -> None:
    new = budget("kept", 5)
    new["metadata"]["generation"] = 2

    assert cost_of(_units(pod("a", app="kept")), Budgets([new])).violations == 1


def test_a_budget_of_another_namespace_does_not_count() -> None:
    other = budget("kept", 0)
    other["metadata"]["namespace"] = "other"

    assert cost_of(_units(pod("a", app="kept")), Budgets([other])).violations == 0


def test_more_important_are_higher_priorities_then_older_pods() -> None:
    units = _units(pod("new", 1, start_day=9), pod("old", 1, start_day=2), pod("high", 2, start_day=20))

    assert [str(one) for one in sorted(units, key=importance)] == ["ns/new", "ns/old", "ns/high"]
