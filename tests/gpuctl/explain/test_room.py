"""Explanations say in one line which pods of lower priority would have to end."""

from tests.gpuctl.explain.site import WHOLE, Site, claim_spec


def test_a_budget_in_the_way_is_said_and_many_pods_are_cut() -> None:
    site = Site("node-a")
    for name in ("a", "b", "c", "d"):
        site.runs(name, "node-a", claim_spec(shares=1))
    site.protect("a")

    told = site.explained(site.waits("serve", claim_spec(WHOLE), priority=10))

    assert told.findings[0].message == (
        "it would fit on node-a if team/a, team/b, team/c and 1 more, of lower priority, ended,"
        " which a budget forbids now"
    )


def test_pods_that_are_ending_are_said_to_be_enough() -> None:
    site = Site("node-a")
    site.runs("batch", "node-a", claim_spec(WHOLE))["metadata"]["deletionTimestamp"] = "2026-03-01T09:00:00Z"

    told = site.explained(site.waits("serve", claim_spec(WHOLE), priority=10))

    assert told.findings[0].kind == "ending"


def test_what_may_not_be_read_is_told() -> None:
    site = Site("node-a")
    site.runs("batch", "node-a", claim_spec(WHOLE))
    pod = site.waits("serve", claim_spec(WHOLE), priority=10)

    assert site.explained(pod, "poddisruptionbudgets").unread == ("poddisruptionbudgets",)
