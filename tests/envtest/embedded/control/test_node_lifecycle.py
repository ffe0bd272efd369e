"""A node that is not ready or cordoned gets taints, which keep pods away and delete those that are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from envtest.embedded.control.node_lifecycle import lifecycle_taints, tolerated_seconds
from tests.envtest.embedded.control.control_plane import ControlPlane, control_plane

NOT_READY = "node.kubernetes.io/not-ready"


@pytest.fixture
def cluster() -> Iterator[ControlPlane]:
    with control_plane() as found:
        yield found


def taints(cluster: ControlPlane) -> set[tuple[str, str]]:
    return {(one["key"], one["effect"]) for one in cluster.node()["spec"].get("taints") or ()}


def test_no_pod_is_scheduled_to_a_node_that_is_not_ready_until_it_is(cluster: ControlPlane) -> None:
    cluster.set_ready("False")
    cluster.wait(lambda: taints(cluster) == {(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")})
    cluster.add_pod("late")

    assert "1 node(s) had untolerated taint(s)" in cluster.wait_refused("late")
    cluster.set_ready("True")
    assert cluster.wait_bound("late") == "node-a"
    assert taints(cluster) == set()


def test_a_pod_without_patience_is_deleted_from_a_lost_node_and_others_stay(cluster: ControlPlane) -> None:
    hasty = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 0}
    cluster.add_pod("hasty", tolerations=[{**hasty, "effect": "NoExecute"}])
    cluster.add_pod("patient")
    for name in ("hasty", "patient"):
        cluster.wait_bound(name)

    cluster.set_ready("Unknown")

    cluster.wait(lambda: cluster.is_leaving("hasty"))
    assert not cluster.is_leaving("patient")
    assert cluster.told("TaintManagerEviction") == ["Marking for deletion Pod default/hasty"]
    assert [one.get("tolerationSeconds") for one in cluster.pod("patient")["spec"]["tolerations"]] == [
        300,
        300,
    ]


def test_a_cordoned_node_has_a_taint_and_taints_of_others_stay() -> None:
    mine = {"key": "example.com/mine", "effect": "NoExecute"}
    node = {"spec": {"unschedulable": True, "taints": [mine, {"key": NOT_READY, "effect": "NoSchedule"}]}}

    first, second = lifecycle_taints(node)

    assert first == mine
    assert (second["key"], second["effect"]) == ("node.kubernetes.io/unschedulable", "NoSchedule")
    assert lifecycle_taints({"spec": {"taints": [mine]}}) == [mine]
    pressed = {"status": {"conditions": [{"type": "MemoryPressure", "status": "True"}]}}
    assert [one["effect"] for one in lifecycle_taints(pressed)] == ["NoSchedule"]


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], 0),
        ([{"key": "a", "operator": "Exists"}], 0),
        ([{"operator": "Exists"}], None),
        ([{"operator": "Exists", "tolerationSeconds": 60}], 60),
        ([{"key": "a", "operator": "Exists", "tolerationSeconds": 5}, {"operator": "Exists"}], 5),
        ([{"operator": "Exists", "tolerationSeconds": -5}], 0),
    ],
)
def test_a_pod_stays_as_long_as_it_tolerates_all_taints(
    tolerations: list[dict[str, Any]], seconds: float | None
) -> None:
    both = [{"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "NoExecute"}]
    assert tolerated_seconds(both, tolerations) == seconds
