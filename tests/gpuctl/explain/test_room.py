"""Explanations say in one line which pods of lower priority would have to end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpuctl.explain.answer import explain_pod
from gpuctl.explain.findings import Explanation
from gpuctl.explain.room import Occupants, Rooms
from tests.gpuctl.explain.site import WHOLE, Object, Site, claim_spec


class Reading:
    """The pods and budgets of a site, and how often they were read."""

    def __init__(self, site: Site, *unread: str) -> None:
        self.times = 0
        self._found = Occupants(tuple(site.pods), tuple(site.budgets), (), unread)

    def __call__(self) -> Occupants:
        self.times += 1
        return self._found


def explained(site: Site, pod: Object, read: Callable[[], Occupants]) -> Explanation:
    snapshot = site.snapshot()
    return Rooms(snapshot, read).added_to(explain_pod(pod, snapshot, {}, ()), pod, {}, ())


def test_the_best_room_comes_first() -> None:
    site = Site("node-a", "node-b")
    site.runs("batch", "node-a", claim_spec(WHOLE), priority=5)
    site.runs("note", "node-b", claim_spec(WHOLE), priority=3)

    told = explained(site, site.waits("serve", claim_spec(WHOLE), priority=10), Reading(site))

    assert told.findings[0].kind == "room"
    assert told.findings[0].message == "it would fit on node-b if team/note, of lower priority, ended"
    assert told.findings[0].remedy == "`gpuctl room serve -n team` shows who else could end"
    assert told.findings[1].kind == "in-use"


def test_a_budget_in_the_way_is_said_and_many_pods_are_cut() -> None:
    site = Site("node-a")
    for name in ("a", "b", "c", "d"):
        site.runs(name, "node-a", claim_spec(shares=1))
    site.protect("a")

    told = explained(site, site.waits("serve", claim_spec(WHOLE), priority=10), Reading(site))

    assert told.findings[0].message == (
        "it would fit on node-a if team/a, team/b, team/c and 1 more, of lower priority, ended,"
        " which a budget forbids now"
    )


def test_without_lower_priorities_nothing_is_said_of_it() -> None:
    site = Site("node-a")
    site.runs("batch", "node-a", claim_spec(WHOLE), priority=10)

    told = explained(site, site.waits("serve", claim_spec(WHOLE), priority=10), Reading(site))

    assert [one.kind for one in told.findings] == ["in-use"]


def test_pods_that_are_ending_are_said_to_be_enough() -> None:
    site = Site("node-a")
    site.runs("batch", "node-a", claim_spec(WHOLE))["metadata"]["deletionTimestamp"] = "2026-03-01T09:00:00Z"

    told = explained(site, site.waits("serve", claim_spec(WHOLE), priority=10), Reading(site))

    assert told.findings[0].kind == "ending"


def test_what_may_not_be_read_is_told() -> None:
    site = Site("node-a")
    site.runs("batch", "node-a", claim_spec(WHOLE))
    pod = site.waits("serve", claim_spec(WHOLE), priority=10)

    assert explained(site, pod, Reading(site, "poddisruptionbudgets")).unread == ("poddisruptionbudgets",)


@pytest.mark.parametrize("why", ["fits", "never", "missing"])
def test_pods_are_only_read_if_somebody_could_make_room(why: str) -> None:
    site = Site("node-a")
    reading = Reading(site)
    pod = site.waits("serve", claim_spec(WHOLE, count=2 if why == "never" else 1))
    if why == "missing":
        site.claims.clear()

    explained(site, pod, reading)

    assert reading.times == 0


def test_pods_are_read_once_for_many_explanations() -> None:
    site = Site("node-a")
    site.runs("batch", "node-a", claim_spec(WHOLE))
    pods = [site.waits(f"serve-{n}", claim_spec(WHOLE), priority=10) for n in range(3)]
    reading, snapshot = Reading(site), site.snapshot()
    rooms = Rooms(snapshot, reading)

    told = [rooms.added_to(explain_pod(pod, snapshot, {}, ()), pod, {}, ()) for pod in pods]

    assert reading.times == 1
    assert {one.findings[0].kind for one in told} == {"room"}
