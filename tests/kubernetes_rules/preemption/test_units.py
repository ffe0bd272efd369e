"""Pods that cannot go one by one are one unit, and a claim is free only once nobody uses it."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.preemption.units import Unit, Units, units_of
from tools.conformance.allocation.objects import held
from tools.conformance.room.random_rooms import pod, used_by

Json = dict[str, Any]


def _on(units: Units, node: str = "node-1") -> dict[str, list[str]]:
    return {
        str(one): sorted(claim["metadata"]["name"] for claim in one.claims) for one in units.on_node[node]
    }


def _only(units: Units) -> Unit:
    (unit,) = units.on_node["node-1"]
    return unit


def _grouped(one: Json, group: str) -> Json:
    return {**one, "spec": {**one["spec"], "schedulingGroup": {"podGroupName": group}}}


def _group(name: str, mode: str, **spec: Any) -> Json:
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": {"disruptionMode": {mode: {}}, **spec}}


def test_each_pod_is_a_unit_with_its_claims() -> None:
    a, b = pod("a"), pod("b")
    claims = [used_by(held("gpu-0", name="x"), a), used_by(held("gpu-1", name="y"), a)]

    assert _on(units_of([a, b], claims)) == {"ns/a": ["x", "y"], "ns/b": []}


def test_pods_that_share_a_claim_go_together_on_whatever_nodes() -> None:
    a, b, c = pod("a"), pod("b", 7, start_day=3), pod("c")
    b["spec"]["nodeName"] = "node-2"
    claims = [used_by(held("gpu-0", name="x"), a, b), used_by(held("gpu-1", name="y"), b, c)]
    units = units_of([a, b, c], claims)

    assert _on(units) == {"ns/a, ns/b, ns/c": ["x", "y"]}
    assert units.on_node["node-2"] == units.on_node["node-1"]
    assert (_only(units).priority, _only(units).started) == (7, "2026-01-03T00:00:00Z")


def test_a_group_that_is_disrupted_as_a_whole_is_one_unit_with_the_groups_priority() -> None:
    pods = [_grouped(pod(name, 3), "train") for name in "ab"]
    units = units_of([*pods, pod("c")], [], [_group("train", "all", priority=9)])

    assert sorted(_on(units)) == ["ns/a, ns/b", "ns/c"]
    group = next(one for one in units.on_node["node-1"] if one.is_group)
    assert group.priorities == (9, 9)


def test_pods_of_other_groups_go_one_by_one() -> None:
    pods = [_grouped(pod(name), "serve") for name in "ab"]

    assert sorted(_on(units_of(pods, [], [_group("serve", "single")]))) == ["ns/a", "ns/b"]


def test_a_claim_that_something_else_reserves_too_is_never_freed() -> None:
    a = pod("a")
    claims = [used_by(held(f"gpu-{n}", name=str(n)), a) for n in range(3)]
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

    assert _on(units_of([a, b], [used_by(held("gpu-0", name="x"), a, b)])) == {"ns/a": []}


def test_claims_of_pods_that_end_anyway_are_free_soon_and_their_pods_are_no_victims() -> None:
    a, b, c = pod("a"), pod("b"), pod("c")
    a["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    b["status"]["phase"] = "Succeeded"
    claims = [used_by(held(f"gpu-{n}", name=f"of-{n}"), one) for n, one in enumerate((a, b))]
    units = units_of([a, b, c], [*claims, used_by(held("gpu-2", name="both"), a, c)])

    assert _on(units) == {"ns/c": ["both"]}
    assert [one["metadata"]["name"] for one in units.ending] == ["of-0", "of-1"]
    assert [one["metadata"]["name"] for one in units.there["node-1"]] == ["a", "c"]


def test_a_pod_that_has_not_started_counts_as_started_last() -> None:
    a = pod("a")
    del a["status"]["startTime"]

    assert _only(units_of([a], [])).started is None
