"""A gang that waits is placed one member after the other; then all members together, if that could help."""

from __future__ import annotations

from typing import Any

import pytest

from kubernetes_rules.preemption import gang_places
from kubernetes_rules.preemption.asked import Asked
from kubernetes_rules.preemption.cluster import Cluster
from kubernetes_rules.preemption.gang_places import Places, Progress, progress_of
from tests.kubernetes_rules.preemption.test_gangs import cluster_with, gang, runs
from tools.conformance.allocation import objects as api

Json = dict[str, Any]

BIG = api.exactly("r0", "device.attributes['gpu.example.com'].big")
ANY = api.exactly()


def _progress(cluster: Cluster, members: list[Asked], needed: int | None = None) -> Progress:
    return progress_of(cluster, members, needed or len(members), lambda _: "")


def _found(
    waiting: dict[str, Json], gpus: dict[str, int], *there: Json, needed: int | None = None, cpu: str = "64"
) -> Progress:
    cluster, members = cluster_with(list(there), waiting, [gang(needed or len(waiting))], gpus, cpu)
    return _progress(cluster, members, needed)


def _names(places: Places) -> list[tuple[str, str]]:
    return [(one.pod["metadata"]["name"], where) for one, where in places if one.pod is not None]


def test_each_member_counts_for_those_after_it() -> None:
    found = _found({"a": ANY, "b": ANY, "c": ANY}, {"n0": 1, "n1": 1})

    assert [name for name, _ in _names(found.placed)] == ["a", "b"]
    assert _names(found.blocked) == [("c", "there is no room for it beside the others")]
    assert found.otherwise == ()


def test_the_first_member_may_get_the_device_that_only_the_second_can_use() -> None:
    found = _found({"any": ANY, "big": BIG}, {"n0": 2})

    assert _names(found.blocked)[0][0] == "big"
    assert sorted(_names(found.otherwise)) == [("any", "n0"), ("big", "n0")]


def test_the_first_member_may_get_the_node_that_only_the_second_can_use() -> None:
    two = {"exactly": {**ANY["exactly"], "count": 2}, "name": "r0"}
    found = _found({"one": ANY, "two": two}, {"n0": 2, "n1": 1})

    assert _names(found.placed)[0] == ("one", "n0")
    assert sorted(_names(found.otherwise)) == [("one", "n1"), ("two", "n0")]


def test_members_that_are_not_needed_are_left_out() -> None:
    found = _found({"any": ANY, "big": BIG, "more": ANY}, {"n0": 2}, needed=2)

    assert [name for name, _ in _names(found.placed)] == ["any", "more"]
    assert found.otherwise == ()


def test_what_is_ending_still_has_its_devices() -> None:
    ending = runs("p0", "n0", 1)
    ending["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    found = _found({"a": ANY, "b": ANY}, {"n0": 2}, ending)

    assert (len(found.placed), found.otherwise) == (1, ())


def test_cpu_counts_for_all_members_of_a_node() -> None:
    found = _found({"any": ANY, "big": BIG}, {"n0": 2}, cpu="1")

    assert _names(found.blocked)[0][0] == "big"
    assert found.otherwise == ()


def test_a_member_may_need_no_devices_itself() -> None:
    cluster, [one, launcher] = cluster_with([], {"a": ANY, "b": ANY}, [gang(2)], {"n0": 1})
    found = _progress(cluster, [one, Asked(launcher.pod, ())])

    assert _names(found.placed) == [("a", "n0"), ("b", "n0")]


def test_the_reason_is_asked_for_while_the_others_have_their_devices() -> None:
    cluster, members = cluster_with([], {"a": ANY, "b": ANY, "c": ANY}, [gang(3)], {"n0": 1})
    held = []

    def why(_: Asked) -> str:
        held.append(len(cluster.allocator.held.exclusive))
        return "a has it"

    found = progress_of(cluster, members, 3, why)

    assert [text for _, text in found.blocked] == ["a has it", "a has it"]
    assert held == [1]
    assert not cluster.allocator.held.exclusive


def test_a_search_that_takes_too_long_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_places, "MOST_TRIES", 1)

    assert _found({"any": ANY, "big": BIG}, {"n0": 2}).otherwise == ()


def test_members_that_fit_on_few_nodes_are_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_places, "MOST_TRIES", 5)
    two = {"exactly": {**ANY["exactly"], "count": 2}, "name": "r0"}
    found = _found({"a": ANY, "b": ANY, "two": two}, {"n0": 2, "n1": 1, "n2": 1})

    assert sorted(_names(found.otherwise)) == [("a", "n1"), ("b", "n2"), ("two", "n0")]


def test_places_are_not_searched_for_members_that_share_a_claim() -> None:
    cluster, [any_one, big, other] = cluster_with(
        [], {"any": ANY, "big": BIG, "c": ANY}, [gang(3)], {"n0": 3}
    )
    found = _progress(cluster, [any_one, big, Asked(other.pod, any_one.claims)])

    assert [name for name, _ in _names(found.placed)] == ["any", "c"]
    assert found.otherwise == ()
