"""The members of a gang are placed together or not at all, and nobody goes for a part of them."""

from __future__ import annotations

from typing import Any

import pytest

from kubernetes_rules.preemption.asked import Asked
from kubernetes_rules.preemption.choose import best_room
from kubernetes_rules.preemption.cluster import Cluster
from kubernetes_rules.preemption.gangs import GangChoice, best_gang_room, missing_members
from kubernetes_rules.preemption.units import Unit
from tools.conformance.allocation import objects as api
from tools.conformance.room.random_rooms import pod, used_by

Json = dict[str, Any]


def _lower(unit: Unit) -> bool:
    return unit.priority < 100


def _group(name: str, **spec: Any) -> Json:
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": spec}


def gang(least: int) -> Json:
    """The PodGroup of the pods that wait."""
    return _group("train", schedulingPolicy={"gang": {"minCount": least}})


def runs(name: str, node: str, priority: int, group: str | None = None) -> Json:
    """A pod on a node."""
    one = pod(name, priority)
    one["spec"]["nodeName"] = node
    if group is not None:
        one["spec"]["schedulingGroup"] = {"podGroupName": group}
    return one


def _waiting(name: str, cpu: str = "1") -> Json:
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]
    entries = [{"name": "gpu", "resourceClaimName": f"of-{name}"}]
    spec = {"containers": containers, "resourceClaims": entries, "schedulingGroup": {"podGroupName": "train"}}
    return {"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": spec}


def cluster_with(
    running: list[Json], waiting: dict[str, Json], groups: list[Json], gpus: dict[str, int], cpu: str = "64"
) -> tuple[Cluster, list[Asked]]:
    """Each running pod holds one GPU of its node; ``waiting`` are names of pods with their requests."""
    nodes = [{**api.node(name), "status": {"allocatable": {"cpu": cpu, "pods": "110"}}} for name in gpus]
    slices = [
        api.published(
            [api.device(f"gpu-{n}", attributes=api.attributes(big=n == 0)) for n in range(count)],
            name=f"slice-{name}",
            pool=name,
            nodeName=name,
        )
        for name, count in gpus.items()
    ]
    taken = dict.fromkeys(gpus, 0)
    claims = []
    for one in running:
        node = one["spec"]["nodeName"]
        claims.append(
            used_by(api.held(f"gpu-{taken[node]}", pool=node, name=f"c-{one['metadata']['name']}"), one)
        )
        taken[node] += 1
    claims += [api.claim(request, name=f"of-{name}") for name, request in waiting.items()]
    pods = [_waiting(name) for name in waiting]
    cluster = Cluster(nodes, slices, [api.device_class()], claims, [*running, *pods], groups=groups)
    asked = [cluster.asked(one) for one in pods]
    return cluster, [one for one in asked if not isinstance(one, str)]


def _choice(
    running: list[Json], waiting: dict[str, Json], gpus: dict[str, int], cpu: str = "64"
) -> GangChoice:
    cluster, members = cluster_with(running, waiting, [gang(len(waiting))], gpus, cpu)
    return best_gang_room(cluster, members, missing_members(cluster, ("ns", "train")), _lower)


def _all(*names: str) -> dict[str, Json]:
    return dict.fromkeys(names, api.exactly())


_FULL = [runs(f"p{n}", f"n{n // 2}", n) for n in range(4)]
_TWO = {"n0": 2, "n1": 2}


def test_all_members_are_placed_where_the_least_important_have_to_go() -> None:
    found = _choice(_FULL, _all("a", "b", "c"), _TWO)

    assert (found.kind, found.text) == ("room", "it would fit on n0, n1 if ns/p0, ns/p1, ns/p2 ended")
    assert [room.node for _, room in found.placed] == ["n0", "n0", "n1"]
    assert found.cost.pods == 3


def test_nobody_goes_if_one_member_finds_no_place() -> None:
    important = [*_FULL[:3], runs("p3", "n1", 100)]
    found = _choice(important, _all("a", "b", "c", "d"), _TWO)

    assert (found.kind, found.text) == ("no victims", "ns/d: there is no room for it beside the others")
    assert found.units == ()


def test_another_choice_of_devices_is_found_if_the_first_fits_only_some() -> None:
    big = api.exactly("r0", "device.attributes['gpu.example.com'].big")
    found = _choice([], {"any": api.exactly(), "big": big}, {"n0": 2})

    assert found.kind == "fits now"
    assert [member.pod["metadata"]["name"] for member, _ in found.placed if member.pod] == ["big", "any"]


def test_a_pod_that_is_ending_makes_room_without_victims() -> None:
    running = [runs(f"p{n}", "n0", n) for n in range(2)]
    running[0]["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"

    assert _choice(running, _all("a"), {"n0": 2}).kind == "waits"


def test_members_count_for_each_other_with_their_cpu() -> None:
    assert _choice([], _all("a", "b"), {"n0": 2}, cpu="2").kind == "fits now"
    assert _choice([], _all("a", "b"), {"n0": 2}, cpu="1").kind != "fits now"


def test_members_that_run_already_are_not_missing() -> None:
    cluster, _ = cluster_with([runs("p0", "n0", 0, "train")], _all("a"), [gang(3)], {"n0": 2})

    assert missing_members(cluster, ("ns", "train")) == 2


def test_a_member_alone_makes_nobody_go() -> None:
    cluster, members = cluster_with(_FULL, _all("a"), [gang(1)], _TWO)

    assert best_room(cluster, members[0], _lower).text == "it is scheduled together with its group ns/train"


def test_a_gang_with_too_few_pods_waits_for_them() -> None:
    cluster, members = cluster_with(_FULL, _all("a"), [gang(2)], _TWO)

    assert best_gang_room(cluster, members, 2, _lower).kind == "unjudged"


def test_the_allocator_is_as_before() -> None:
    cluster, members = cluster_with(_FULL, _all("a", "b"), [gang(2)], _TWO)
    before = {device: list(names) for device, names in cluster.allocator.held.exclusive.items()}
    best_gang_room(cluster, members, 2, _lower)

    assert cluster.allocator.held.exclusive == before


@pytest.mark.parametrize(("mode", "going"), [("all", "ns/p0, ns/p2"), ("single", "ns/p0")])
def test_a_gang_goes_as_a_whole_if_its_group_says_so(mode: str, going: str) -> None:
    running = [runs(f"p{n}", f"n{n // 2}", 5, "old" if n % 2 == 0 else None) for n in range(4)]
    running[1]["spec"]["priority"] = running[3]["spec"]["priority"] = 200
    old = _group("old", disruptionMode={mode: {}}, priority=5)
    cluster, members = cluster_with(running, _all("a"), [gang(1), old], _TWO)
    found = best_gang_room(cluster, members, 1, _lower)

    assert [str(unit) for unit in found.units] == [going]


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("schedulingConstraints", {"topology": [{"key": "rack"}]}, "the topology"),
        ("resourceClaims", [{"name": "shared"}], "the claims"),
        ("parentCompositePodGroupName", "all", "the composite group"),
    ],
)
def test_what_needs_more_feature_gates_is_not_judged(field: str, value: Any, what: str) -> None:
    group = gang(2)
    group["spec"][field] = value
    cluster, members = cluster_with(_FULL, _all("a", "b"), [group], _TWO)
    found = best_gang_room(cluster, members, 2, _lower)

    assert (found.kind, found.text) == ("unjudged", f"these rules cannot judge {what} of the group train")


def test_a_member_without_devices_only_needs_a_node() -> None:
    cluster, [one, other] = cluster_with(_FULL, _all("a", "b"), [gang(2)], _TWO)
    found = best_gang_room(cluster, [one, Asked(other.pod, ())], 2, _lower)

    assert (found.kind, list(map(str, found.units))) == ("room", ["ns/p0"])
