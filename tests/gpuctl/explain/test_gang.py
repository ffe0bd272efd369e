"""A pod of a gang waits with the others: how many find a place, who is blocked by what, what would help."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from envtest.embedded.server import EmbeddedApiServer
from gpuctl.__main__ import commands
from gpuctl.explain.answer import explain_group, explain_pod
from gpuctl.explain.findings import Explanation
from tests.gpuctl.explain.site import WHOLE, Object, Site, claim_spec


def gang(least: int | None = 2, **spec: object) -> Object:
    policy: Object = {"basic": {}} if least is None else {"gang": {"minCount": least}}
    return {
        "metadata": {"namespace": "team", "name": "train"},
        "spec": {"schedulingPolicy": policy, "priority": 10, **spec},
    }


def member(site: Site, name: str, claim: Object | None = None) -> Object:
    """A pod of the gang that waits, for a whole GPU or for what this spec asks for."""
    group = {"podGroupName": "train"}
    pod = site.waits(name, claim or claim_spec(WHOLE), priority=10, schedulingGroup=group)
    site.pods.append(pod)
    return pod


def explained(site: Site, pod: Object, *groups: Object) -> Explanation:
    site.groups = list(groups)
    return site.explained(pod)


def test_a_pod_whose_devices_are_free_waits_for_one_that_is_blocked() -> None:
    site = Site("node-a")
    first, _ = member(site, "worker-0"), member(site, "worker-1")

    told = explained(site, first, gang())

    assert told.verdict == "waits"
    assert told.summary == (
        "it waits with its group train: 1 of the 2 pods that have to be placed at once find a place"
    )
    assert [one.message for one in told.findings] == [
        "worker-1 is blocked: node-a: 1 matching device is in use by claim team/worker-0-gpu"
    ]


def test_who_would_have_to_end_for_all_comes_first() -> None:
    site = Site("node-a", "node-b")
    site.runs("batch", "node-a", claim_spec(WHOLE), priority=5)
    site.runs("note", "node-b", claim_spec(WHOLE), priority=3)
    first, _ = member(site, "worker-0"), member(site, "worker-1")

    told = explained(site, first, gang())

    assert (told.findings[0].kind, told.findings[0].message) == (
        "room",
        "the gang would fit on node-b, node-a if team/note, team/batch, of lower priority, ended",
    )
    assert "0 of the 2 pods" in told.summary


def test_another_choice_of_devices_that_would_fit_all_is_named() -> None:
    site = Site("node-a", "node-b")
    site.runs("note", "node-b", claim_spec(shares=1), priority=20)
    share = member(site, "a-share", claim_spec(shares=1))
    member(site, "b-whole")

    told = explained(site, share, gang())

    assert told.findings[1].kind == "gang-otherwise"
    assert told.findings[1].message == (
        "all would fit with other nodes or devices: b-whole on node-a, a-share on node-b"
    )
    assert "room" not in [one.kind for one in told.findings]


def test_a_gang_that_fits_is_said_to_fit() -> None:
    site = Site("node-a", "node-b")
    first, _ = member(site, "worker-0"), member(site, "worker-1")

    told = explained(site, first, gang())

    assert (told.verdict, told.findings) == ("fits", ())
    assert told.summary.startswith("it can be placed with its group train: 2 of the 2 pods")


def test_the_oldest_pod_is_placed_first_and_all_pods_get_the_same_answer() -> None:
    site = Site("node-a")
    pods = [member(site, "worker-0"), member(site, "worker-1")]
    for pod, day in zip(pods, ("2", "1"), strict=True):
        pod["metadata"]["creationTimestamp"] = f"2026-03-0{day}T08:00:00Z"
    site.groups = [gang()]
    snapshot = site.snapshot()

    first, second = (explain_pod(pod, snapshot).findings[0] for pod in pods)

    assert first.message.startswith("worker-0 is blocked")
    assert first is second


def test_a_further_pod_of_a_gang_needs_a_place_of_its_own() -> None:
    site = Site("node-a")
    group = {"podGroupName": "train"}
    site.runs("worker-0", "node-a", claim_spec(WHOLE), priority=10, schedulingGroup=group)

    told = explained(site, member(site, "worker-1"), gang(1))

    assert (told.verdict, "0 of the 1 pods" in told.summary) == ("waits", True)


def test_members_that_run_are_not_needed_again() -> None:
    site = Site("node-a", "node-b")
    group = {"podGroupName": "train"}
    site.runs("worker-0", "node-a", claim_spec(WHOLE), priority=10, schedulingGroup=group)

    told = explained(site, member(site, "worker-1"), gang())

    assert (told.verdict, "1 of the 1 pods" in told.summary) == ("fits", True)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([gang(3)], "the group train has 1 of the 3 pods that it needs"),
        ([], "the PodGroup train does not exist"),
    ],
    ids=["pods", "group"],
)
def test_what_a_gang_lacks_is_said_though_its_devices_are_free(groups: list[Object], message: str) -> None:
    site = Site("node-a")
    told = explained(site, member(site, "worker-0"), *groups)

    assert (told.verdict, [one.message for one in told.findings]) == ("waits", [message])


def test_a_member_whose_claim_is_not_made_blocks_the_others() -> None:
    site = Site("node-a", "node-b")
    first, _ = member(site, "worker-0"), member(site, "worker-1")
    site.pods[1]["status"] = {}

    told = explained(site, first, gang())

    assert [one.message for one in told.findings] == ["worker-1 is blocked: its claim gpu is not made yet"]


def test_a_topology_constraint_is_not_judged() -> None:
    site = Site("node-a")
    first, _ = member(site, "worker-0"), member(site, "worker-1")
    group = gang(schedulingConstraints={"topology": [{"key": "rack"}]})

    told = explained(site, first, group)

    assert told.findings[-1].message == "these rules cannot judge the topology of the group train"


@pytest.mark.parametrize("why", ["forbidden", "not served", "one by one"])
def test_without_a_gang_the_pod_is_explained_alone(why: str) -> None:
    site = Site("node-a")
    first, _ = member(site, "worker-0"), member(site, "worker-1")
    site.groups = None if why == "not served" else [gang(None if why == "one by one" else 2)]

    told = site.explained(first, *(["podgroups"] if why == "forbidden" else []))

    assert (told.verdict, told.summary.partition(";")[0]) == ("fits", "its devices are free on node-a")
    assert told.unread == (("podgroups",) if why == "forbidden" else ())


def test_a_group_is_explained_itself() -> None:
    site = Site("node-a")
    member(site, "worker-0")
    member(site, "worker-1")
    site.groups = [gang()]

    told = explain_group(gang(), site.snapshot())
    alone = explain_group(gang(None), site.snapshot())
    unread = explain_group(gang(), site.snapshot("pods"))

    about = told.object.kind, told.object.name
    assert (*about, told.verdict, len(told.findings)) == ("PodGroup", "train", "waits", 1)
    assert alone.verdict == "fits"
    assert (unread.summary, unread.unread) == (
        "it cannot be judged without all pods and PodGroups",
        ("pods",),
    )


def test_a_cluster_without_groups_has_none_to_explain(tmp_path: Path) -> None:
    with EmbeddedApiServer() as server:
        kubeconfig = str(server.write_kubeconfig(tmp_path / "config"))
        one = CliRunner().invoke(commands, ["explain", "podgroup", "train", "--kubeconfig", kubeconfig])
        all_of_them = CliRunner().invoke(commands, ["explain", "podgroups", "--kubeconfig", kubeconfig])

    assert "there is no podgroup default/train" in str(one.exception)
    assert (all_of_them.exit_code, all_of_them.output) == (0, "nothing here asks for devices\n")
