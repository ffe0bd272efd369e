"""``gpuctl room POD`` names the smallest sets of pods whose end would help, under three policies."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.room.picture import room_text
from gpuctl.room.rooms import Budget, NodeRoom, RoomAnswer
from tests.gpuctl.explain.site import SHARE, WHOLE, Site, claim_spec


def who(answer: RoomAnswer) -> dict[str, list[str]]:
    """The pods of each room, by policy."""
    return {
        one.policy: [f"{room.node}: {' '.join(map(str, room.pods))}" for room in one.rooms]
        for one in answer.policies
    }


def test_each_policy_has_its_own_smallest_sets() -> None:
    site = Site("node-a", "node-b")
    site.runs("batch", "node-a", claim_spec(WHOLE), movable=False, priority=5)
    site.runs("note-1", "node-b", claim_spec(shares=1), priority=100)
    site.runs("note-2", "node-b", claim_spec(shares=1), priority=100)

    told = site.answer(site.waits("serve", claim_spec(WHOLE), priority=10))

    assert told.verdict == "room"
    assert who(told) == {
        "lower-priority": ["node-a: team/batch"],
        "movable": ["node-b: team/note-1 team/note-2"],
        "any": ["node-a: team/batch", "node-b: team/note-1 team/note-2"],
    }


def test_only_as_many_shares_as_needed_have_to_go() -> None:
    site = Site("node-a")
    for name, shares in (("one", 1), ("other", 1), ("large", 2)):
        site.runs(name, "node-a", claim_spec(shares=shares), priority=shares)

    told = site.answer(site.waits("serve", claim_spec(shares=1), priority=10))

    assert who(told)["lower-priority"] == ["node-a: team/other"] or who(told)["lower-priority"] == [
        "node-a: team/one"
    ]


def test_a_room_says_since_when_whose_what_protects_it_and_what_is_gained() -> None:
    site = Site("node-a")
    site.runs("batch", "node-a", claim_spec(WHOLE), owner="Job/nightly")
    site.protect("batch")

    told = site.answer(site.waits("serve", claim_spec(WHOLE), priority=10))

    [room] = told.policies[0].rooms
    [pod] = room.pods
    assert (pod.since, pod.owner, pod.priority) == ("2026-03-01T08:00:00Z", "Job/nightly", 0)
    assert pod.budgets == (Budget("batch-budget", 0),)
    assert (room.refused, room.exact) == (1, True)
    assert room.gains == ("node-a/gpu.nvidia.com/gpu-0000-3b-00-0",)
    assert "batch-budget allows 0" in room_text(told, wide=False)


def test_budgets_that_may_not_be_read_are_named_and_shown_as_unknown() -> None:
    room = NodeRoom("node-a", (), (), 0, exact=True)
    site = Site("node-a")
    site.runs("batch", "node-a", claim_spec(WHOLE))
    told = site.answer(site.waits("serve", claim_spec(WHOLE), priority=10))
    unread = RoomAnswer("team", "serve", "room", "", (), told.policies, ("poddisruptionbudgets",))

    shown = room_text(unread, wide=False)

    assert room.pods == ()
    assert "not considered, because this user may not read them: poddisruptionbudgets" in shown
    assert "   ?   " in shown


@pytest.mark.parametrize(
    ("spec", "status", "verdict", "summary"),
    [
        ({"nodeName": "node-b"}, {}, "placed", "it is on node-b already"),
        ({}, {"phase": "Succeeded"}, "placed", "it has ended"),
        ({"resourceClaims": []}, {}, "idle", "it asks for no devices"),
        ({"nodeSelector": {"zone": "moon"}}, {}, "never", "no node could run it, whoever ended"),
        ({"schedulerName": "other"}, {}, "unjudged", "the scheduler other"),
        ({"schedulingGates": [{"name": "a"}]}, {}, "unjudged", "scheduling gates"),
    ],
    ids=["has a node", "has ended", "no claims", "no node", "other scheduler", "gates"],
)
def test_a_pod_that_room_does_not_help_is_told_so(
    spec: dict[str, Any], status: dict[str, Any], verdict: str, summary: str
) -> None:
    site = Site("node-a")
    site.runs("batch", "node-a", claim_spec(WHOLE))
    pod = site.waits("serve", claim_spec(WHOLE), priority=10, **spec)
    pod["status"].update(status)

    told = site.answer(pod)

    assert told.verdict == verdict
    assert summary in told.summary
    assert told.policies == ()


def test_what_fits_needs_no_room() -> None:
    site = Site("node-a")

    assert site.answer(site.waits("serve", claim_spec(WHOLE))).verdict == "fits"


def test_pods_that_are_ending_are_waited_for() -> None:
    site = Site("node-a")
    site.runs("batch", "node-a", claim_spec(WHOLE))["metadata"]["deletionTimestamp"] = "2026-03-01T09:00:00Z"

    told = site.answer(site.waits("serve", claim_spec(WHOLE)))

    assert (told.verdict, told.policies) == ("ending", ())
    assert "once pods that are being deleted have ended" in told.summary


def test_more_than_a_node_has_never_fits() -> None:
    site = Site("node-a")
    site.runs("batch", "node-a", claim_spec(WHOLE))

    assert site.answer(site.waits("serve", claim_spec(WHOLE, count=2))).verdict == "never"


def test_devices_that_nobody_can_free_leave_it_full() -> None:
    site = Site("node-a")
    site.runs("batch", "node-a", claim_spec(WHOLE))
    site.claims[0]["status"]["reservedFor"] = []

    told = site.answer(site.waits("serve", claim_spec(WHOLE), priority=10))

    assert (told.verdict, [one.rooms for one in told.policies]) == ("full", [(), (), ()])


def test_a_claim_that_is_missing_is_named_and_one_that_is_not_made_yet_is_made_up() -> None:
    site = Site("node-a")
    site.runs("batch", "node-a", claim_spec(WHOLE))
    missing = site.pod("serve", priority=10)
    unmade = site.pod("serve", priority=10)
    del unmade["status"]["resourceClaimStatuses"]

    wrong = site.answer(missing)
    soon = site.answer(unmade, templates={"gpu": {"spec": {"spec": claim_spec(WHOLE)}}})

    assert (wrong.verdict, wrong.findings[0].kind) == ("incomplete", "claim-missing")
    assert who(soon)["lower-priority"] == ["node-a: team/batch"]


def test_a_claim_with_its_devices_is_left_alone() -> None:
    site = Site("node-a")
    pod = site.runs("serve", "node-a", claim_spec(WHOLE))
    del pod["spec"]["nodeName"]

    assert site.answer(pod).verdict == "idle"


def test_extended_resources_are_devices_too() -> None:
    site = Site("node-a")
    site.classes = tuple(
        {**one, "spec": {**one["spec"], "extendedResourceName": "nvidia.com/gpu"}}
        if one["metadata"]["name"] == WHOLE
        else one
        for one in site.classes
    )
    site.runs("batch", "node-a", claim_spec(WHOLE))
    pod = site.pod("serve", priority=10, resourceClaims=[])
    pod["spec"]["containers"] = [{"name": "main", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]

    assert who(site.answer(pod))["lower-priority"] == ["node-a: team/batch"]


def test_a_node_whose_pods_share_a_claim_loses_all_of_them() -> None:
    site = Site("node-a")
    site.runs("one", "node-a", claim_spec(SHARE))
    other = site.pod("other", owner="ReplicaSet/web")
    other["spec"]["nodeName"] = "node-a"
    site.pods.append(other)
    site.claims[0]["status"]["reservedFor"].append({"resource": "pods", "name": "other", "uid": "other"})

    told = site.answer(site.waits("serve", claim_spec(WHOLE), priority=10))

    assert who(told)["lower-priority"] == ["node-a: team/one team/other"]
    assert who(told)["movable"] == []


def test_more_nodes_than_three_are_shown_with_wide_output() -> None:
    names = [f"node-{n}" for n in range(5)]
    site = Site(*names)
    for name in names:
        site.runs(f"on-{name}", name, claim_spec(WHOLE))

    told = site.answer(site.waits("serve", claim_spec(WHOLE), priority=10))

    assert "any: and 2 more nodes; -o wide shows all" in room_text(told, wide=False)
    assert all(f"team/on-{name}" in room_text(told, wide=True) for name in names)
