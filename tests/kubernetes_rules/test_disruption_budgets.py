"""How many pods a PodDisruptionBudget lets go, and whether it lets a pod be evicted."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubernetes_rules.disruption_budgets import (
    NotCounted,
    Scaled,
    failed_status,
    may_evict_unready,
    may_ignore_budgets,
    needs_scale,
    new_status,
    seconds_to_recheck,
    status_after_eviction,
    unmanaged,
)
from tests.clusters import Object

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


TEXT = "2026-01-01T12:00:00Z"


def pod(name: str, *, ready: bool = True, owner: str = "", **metadata: Any) -> Object:
    owners = [{"uid": owner, "controller": True}] if owner else []
    metadata = {"name": name, "labels": {"app": "a"}, "ownerReferences": owners, **metadata}
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {"metadata": metadata, "status": {"phase": "Running", "conditions": conditions}}


def budget(status: Object | None = None, **spec: Any) -> Object:
    return {"metadata": {"name": "b", "generation": 3}, "spec": spec, "status": status or {}}


def counted(
    one: Object, pods: list[Object], scales: dict[str, Scaled] | None = None
) -> tuple[int, int, int, int]:
    """Healthy, desired, expected and allowed."""
    status = new_status(one, pods, scales or {}, NOW)
    assert status["observedGeneration"] == 3
    names = ("currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed")
    healthy, desired, expected, allowed = (status[name] for name in names)
    return healthy, desired, expected, allowed


def test_a_number_of_available_pods_is_counted_from_those_that_are_there() -> None:
    pods = [pod("a"), pod("b"), pod("c", ready=False), pod("d", deletionTimestamp=TEXT)]

    assert counted(budget(minAvailable=1), pods) == (2, 1, 4, 1)
    assert counted(budget(minAvailable=2), pods) == (2, 2, 4, 0)
    assert counted(budget(minAvailable=9), pods) == (2, 9, 4, 0)
    assert counted(budget(minAvailable=0), []) == (0, 0, 0, 0)
    assert counted(budget(), pods) == (2, 0, 0, 0)


def test_shares_and_what_may_be_lost_are_counted_from_what_controllers_want() -> None:
    pods = [pod("a", owner="x"), pod("b", owner="x"), pod("c", owner="y")]
    scales = {"x": Scaled("x", 4), "y": Scaled("y", 1)}

    assert counted(budget(maxUnavailable=3), pods, scales) == (3, 2, 5, 1)
    assert counted(budget(maxUnavailable="50%"), pods, scales) == (3, 2, 5, 1)  # 2.5 is rounded up
    assert counted(budget(minAvailable="50%"), pods, scales) == (3, 3, 5, 0)
    assert counted(budget(maxUnavailable=9), pods, scales) == (3, 0, 5, 3)


def test_the_replica_sets_of_one_deployment_count_once() -> None:
    pods = [pod("a", owner="old"), pod("b", owner="new")]
    scales = dict.fromkeys(("old", "new"), Scaled("deployment", 2))

    assert counted(budget(maxUnavailable=1), pods, scales) == (2, 1, 2, 1)


def test_a_controller_that_has_no_scale_stops_the_count() -> None:
    scales = {"j": Scaled("j", None, "jobs.batch")}

    with pytest.raises(NotCounted, match=r"jobs\.batch does not implement the scale subresource"):
        counted(budget(maxUnavailable=1), [pod("a", owner="j")], scales)


def test_pods_that_nothing_manages_are_expected_to_be_none() -> None:
    one = budget(maxUnavailable=1)

    assert counted(one, [pod("a"), pod("b")]) == (2, 0, 0, 0)
    assert unmanaged([pod("a"), pod("b", owner="x")]) == ["a"]
    assert needs_scale(one)
    assert needs_scale(budget(minAvailable="10%"))
    assert not needs_scale(budget(minAvailable=1))


def test_a_controller_that_is_unknown_allows_nothing_and_says_so() -> None:
    one = budget({"disruptionsAllowed": 2, "observedGeneration": 2}, maxUnavailable=1)
    with pytest.raises(NotCounted) as caught:
        new_status(one, [pod("a", owner="gone")], {}, NOW)

    status = failed_status(one, caught.value.what, NOW)
    (condition,) = status["conditions"]
    assert (status["disruptionsAllowed"], status["observedGeneration"]) == (0, 2)
    assert (condition["reason"], condition["status"]) == ("SyncFailed", "False")
    assert condition["message"] == 'found no controllers for pod "a"'


def test_a_pod_that_is_to_be_evicted_counts_again_when_it_stays_too_long() -> None:
    fresh, old = NOW - timedelta(seconds=30), NOW - timedelta(seconds=121)
    noted = {name: when.strftime("%Y-%m-%dT%H:%M:%SZ") for name, when in (("a", fresh), ("b", old))}
    status = new_status(
        budget({"disruptedPods": {**noted, "gone": TEXT}}, minAvailable=1), [pod("a"), pod("b")], {}, NOW
    )

    assert status["disruptedPods"] == {"a": noted["a"]}
    assert status["currentHealthy"] == 1
    assert seconds_to_recheck(status, NOW) == 90
    assert seconds_to_recheck({}, NOW) is None


def test_the_condition_changes_its_time_with_its_value_alone() -> None:
    first = new_status(budget(minAvailable=1), [pod("a"), pod("b")], {}, NOW)
    later = NOW + timedelta(hours=1)
    same = new_status(budget(first, minAvailable=1), [pod("a"), pod("b")], {}, later)
    other = new_status(budget(same, minAvailable=1), [pod("a")], {}, later)

    assert first["conditions"][0]["reason"] == "SufficientPods"
    assert first["conditions"][0]["observedGeneration"] == 3
    assert same == first
    (condition,) = other["conditions"]
    assert (condition["reason"], condition["status"]) == ("InsufficientPods", "False")
    assert condition["lastTransitionTime"] == "2026-01-01T13:00:00Z"


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_a_pod_that_does_not_run_is_evicted_whatever_its_budget(phase: str) -> None:
    assert may_ignore_budgets({**pod("p"), "status": {"phase": phase}})
    assert not may_ignore_budgets(pod("p"))
    assert may_ignore_budgets(pod("p", deletionTimestamp=TEXT))


def test_a_pod_that_is_not_ready_takes_nothing_from_a_budget_that_is_met() -> None:
    met, missed = ({"desiredHealthy": desired, "currentHealthy": 1} for desired in (1, 2))
    unready = pod("p", ready=False)

    assert may_evict_unready(budget(met), unready)
    assert not may_evict_unready(budget(met), pod("p"))
    assert not may_evict_unready(budget(missed), unready)
    assert may_evict_unready(budget(missed, unhealthyPodEvictionPolicy="AlwaysAllow"), unready)


def test_an_eviction_takes_a_disruption_and_notes_the_pod() -> None:
    two = status_after_eviction(budget({"disruptionsAllowed": 2, "observedGeneration": 3}), "p", NOW)
    none = status_after_eviction(budget(two), "q", NOW)

    assert two["disruptionsAllowed"] == 1
    assert "conditions" not in two
    assert none["disruptionsAllowed"] == 0
    assert none["disruptedPods"] == {"p": "2026-01-01T12:00:00Z", "q": "2026-01-01T12:00:00Z"}
    assert none["conditions"][0]["reason"] == "InsufficientPods"
