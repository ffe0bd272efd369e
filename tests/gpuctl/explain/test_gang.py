"""A pod of a gang waits with the others: how many find a place, who is blocked by what, what would help."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpuctl.explain.answer import explain_group, explain_pod
from gpuctl.explain.findings import Explanation
from tests.gpuctl.explain.site import WHOLE, Object, Site, claim_spec

GROUP = {"podGroupName": "train"}


def gang(least: int | None = 2, **spec: object) -> Object:
    policy: Object = {"basic": {}} if least is None else {"gang": {"minCount": least}}
    return {
        "metadata": {"namespace": "team", "name": "train"},
        "spec": {"schedulingPolicy": policy, "priority": 10, **spec},
    }


def member(site: Site, name: str, claim: Object | None = None) -> Object:
    """A pod of the gang that waits, for a whole GPU or for what this spec asks for."""
    pod = site.waits(name, claim or claim_spec(WHOLE), priority=10, schedulingGroup=GROUP)
    site.pods.append(pod)
    return pod


def two_members(site: Site, *groups: Object, refused: tuple[str, ...] = ()) -> Explanation:
    """The first of two pods that want a GPU each; PodGroups are served if there are some."""
    first, _ = member(site, "worker-0"), member(site, "worker-1")
    site.groups = list(groups) or None
    return site.explained(first, *refused)


def beside_others() -> Explanation:
    site = Site("node-a", "node-b")
    site.runs("batch", "node-a", claim_spec(WHOLE), priority=5)
    site.runs("note", "node-b", claim_spec(WHOLE), priority=3)
    return two_members(site, gang())


def in_another_order() -> Explanation:
    """Were the whole GPU given first, there would be room for the share beside the note."""
    site = Site("node-a", "node-b")
    site.groups = [gang()]
    site.runs("note", "node-b", claim_spec(shares=1), priority=20)
    share = member(site, "a-share", claim_spec(shares=1))
    member(site, "b-whole")
    return site.explained(share)


def one_runs(least: int, *nodes: str) -> Explanation:
    site = Site(*nodes)
    site.groups = [gang(least)]
    site.runs("worker-0", "node-a", claim_spec(WHOLE), priority=10, schedulingGroup=GROUP)
    return site.explained(member(site, "worker-1"))


def alone(*groups: Object) -> Explanation:
    site = Site("node-a")
    site.groups = list(groups)
    return site.explained(member(site, "worker-0"))


def unmade() -> Explanation:
    site = Site("node-a", "node-b")
    site.groups = [gang()]
    first, second = member(site, "worker-0"), member(site, "worker-1")
    second["status"] = {}
    return site.explained(first)


def of_group(least: int | None, *refused: str) -> Explanation:
    site = Site("node-a")
    two_members(site, gang(least))
    return explain_group(gang(least), site.snapshot(*refused))


GANGS: Mapping[str, Callable[[], Explanation]] = {
    "one GPU for two": lambda: two_members(Site("node-a"), gang()),
    "others would have to end": beside_others,
    "other devices would fit all": in_another_order,
    "it fits": lambda: two_members(Site("node-a", "node-b"), gang()),
    "a further pod needs a place of its own": lambda: one_runs(1, "node-a"),
    "a member that runs is not needed again": lambda: one_runs(2, "node-a", "node-b"),
    "too few pods": lambda: alone(gang(3)),
    "no group": alone,
    "a claim is not made": unmade,
    "a topology": lambda: two_members(
        Site("node-a"), gang(schedulingConstraints={"topology": [{"key": "rack"}]})
    ),
    "groups may not be read": lambda: two_members(Site("node-a"), gang(), refused=("podgroups",)),
    "groups are not served": lambda: two_members(Site("node-a")),
    "pods are scheduled one by one": lambda: two_members(Site("node-a"), gang(None)),
    "the group itself": lambda: of_group(2),
    "a group without a gang": lambda: of_group(None),
    "a group whose pods may not be read": lambda: of_group(2, "pods"),
}


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
