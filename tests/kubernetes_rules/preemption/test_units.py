"""Pods that share a claim are one unit; kube-scheduler prefers one set of units to another."""

from typing import Any

import pytest

from kubernetes_rules.preemption.units import Budgets, Unit, Units, cost_of, importance, units_of
from tests.clusters import Object
from tools.conformance.allocation.objects import held
from tools.conformance.victims.random_cases import budget, pod, used_by


def _on(units: Units, node: str = "node-1") -> dict[str, list[str]]:
    return {
        str(one): sorted(claim["metadata"]["name"] for claim in one.claims) for one in units.on_node[node]
    }


def _all(*pods: Object) -> list[Unit]:
    return list(units_of(pods, []).on_node["node-1"])


def _used(name: str, *pods: Object) -> Object:
    """A claim with a GPU that these pods use."""
    return used_by(held("gpu-0", name=name), *pods)


def _only(units: Units) -> Unit:
    (unit,) = units.on_node["node-1"]
    return unit


def test_each_pod_is_a_unit_with_its_claims() -> None:
    a, b = pod("a"), pod("b")
    claims = [_used("x", a), _used("y", a)]

    assert _on(units_of([a, b], claims)) == {"ns/a": ["x", "y"], "ns/b": []}


def test_pods_that_share_a_claim_go_together_on_whatever_nodes() -> None:
    a, b, c = pod("a"), pod("b", 7, start_day=3), pod("c")
    b["spec"]["nodeName"] = "node-2"
    claims = [_used("x", a, b), _used("y", b, c)]
    units = units_of([a, b, c], claims)

    assert _on(units) == {"ns/a, ns/b, ns/c": ["x", "y"]}
    assert units.on_node["node-2"] == units.on_node["node-1"]
    assert (_only(units).priority, _only(units).started) == (7, "2026-01-03T00:00:00Z")


def test_a_claim_that_something_else_reserves_too_is_never_freed() -> None:
    a = pod("a")
    claims = [_used(str(n), a) for n in range(3)]
    claims[0]["status"]["reservedFor"].append({"resource": "pods", "name": "b", "uid": "unknown"})
    claims[1]["status"]["reservedFor"] = [
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "uid": "g"}
    ]
    claims[2]["status"]["reservedFor"] = []
    units = units_of([a], claims)

    assert _on(units) == {"ns/a": []}
    assert units.ending == ()


def test_a_claim_that_is_reserved_for_a_pod_on_its_way_to_a_node_is_not_freed() -> None:
    a, b = pod("a"), pod("b")
    del b["spec"]["nodeName"]

    assert _on(units_of([a, b], [_used("x", a, b)])) == {"ns/a": []}


def test_claims_of_pods_that_end_anyway_are_free_soon_and_their_pods_are_no_victims() -> None:
    a, b, c = pod("a"), pod("b"), pod("c")
    a["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    b["status"]["phase"] = "Succeeded"
    claims = [_used(f"of-{n}", one) for n, one in enumerate((a, b))]
    units = units_of([a, b, c], [*claims, _used("both", a, c)])

    assert _on(units) == {"ns/c": ["both"]}
    assert [one["metadata"]["name"] for one in units.ending] == ["of-0", "of-1"]
    assert [one["metadata"]["name"] for one in units.there["node-1"]] == ["a", "c"]


def test_a_pod_that_has_not_started_counts_as_started_last() -> None:
    a = pod("a")
    del a["status"]["startTime"]

    assert _only(units_of([a], [])).started is None


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
def test_the_better_set_costs_less(better: list[Object], worse: list[Object]) -> None:
    budgets = Budgets([budget("kept", 0)])

    assert cost_of(_all(*better), budgets) < cost_of(_all(*worse), budgets)


def test_only_pods_beyond_what_a_budget_allows_violate_it() -> None:
    units = _all(*(pod(name, app="kept") for name in "abc"))

    assert [cost_of(units[:n], Budgets([budget("kept", 2)])).violations for n in range(4)] == [0, 0, 0, 1]


def _kept(allowed: int, *, status: Object | None = None, **metadata: Any) -> Object:
    one = budget("kept", allowed)
    return {**one, "metadata": one["metadata"] | metadata, "status": one["status"] | (status or {})}


@pytest.mark.parametrize(
    ("budgets", "violations"),
    [
        ([_kept(0, status={"disruptedPods": {"a": "2026-01-01T00:00:00Z"}})], 0),  # it has counted the pod
        ([_kept(5), _kept(5, name="all")], 1),  # a pod with two budgets cannot be evicted
        ([_kept(5, generation=2)], 1),  # its controller has not seen it
        ([_kept(0, namespace="other")], 0),
    ],
)
def test_which_budgets_an_eviction_violates(budgets: list[Object], violations: int) -> None:
    assert cost_of(_all(pod("a", app="kept")), Budgets(budgets)).violations == violations


def test_more_important_are_higher_priorities_then_older_pods() -> None:
    units = _all(pod("new", 1, start_day=9), pod("old", 1, start_day=2), pod("high", 2, start_day=20))

    assert [str(one) for one in sorted(units, key=importance)] == ["ns/new", "ns/old", "ns/high"]
