"""A plan of moves frees whole GPUs or large partitions, and costs none elsewhere."""

from __future__ import annotations

import random
from typing import Any

import pytest

from driver.errors import ConfigError
from gpuctl.room.defragment import Move, Plan, Staying, free_on
from gpuctl.room.picture import plan_text
from gpuctl.room.rooms import devices_of
from tests.gpuctl.explain.site import SHARE, WHOLE, Site, claim_spec

GPUS = [f"gpu-0000-{bus}-00-0" for bus in ("18", "3b", "86", "af")]


def moves(plan: Plan) -> list[str]:
    """The moves as texts: pod, node, and where it would fit."""
    return [
        f"{move.pod}: {move.pod.node} -> {' '.join(one.node for one in move.fits)}"
        for step in plan.steps
        for move in step.moves
    ]


def test_a_lonely_share_is_moved_beside_others() -> None:
    site = Site("node-a", "node-b")
    site.runs("web", "node-a", claim_spec(shares=3))
    site.runs("api", "node-b", claim_spec(shares=1), movable=False)

    plan = site.plan()

    assert moves(plan) == ["team/web: node-a -> node-b"]
    assert (plan.steps[0].node, plan.steps[0].free) == ("node-a", 0)
    assert plan.steps[0].gains == ("node-a/gpu.nvidia.com/gpu-0000-3b-00-0",)
    assert plan.staying == (Staying(1, 'without the annotation gpu.nvidia.com/movable: "true"'),)


def test_a_move_that_only_takes_another_whole_gpu_is_none() -> None:
    site = Site("node-a", "node-b")
    site.runs("web", "node-a", claim_spec(shares=3))

    assert site.plan().steps == ()


def test_places_where_the_scheduler_could_spoil_it_are_named() -> None:
    site = Site("node-a", "node-b")
    site.runs("web", "node-a", claim_spec(shares=1))
    site.runs("api", "node-b", claim_spec(shares=1), movable=False)

    [step] = site.plan().steps

    assert [one.node for one in step.moves[0].fits] == ["node-b"]
    assert [one.node for one in step.moves[0].spoils] == ["node-a"]


@pytest.mark.parametrize(
    "changed",
    [{"owner": "StatefulSet/db"}, {"terminationGracePeriodSeconds": 0}],
    ids=["stateful set", "no grace period"],
)
def test_a_pod_that_is_made_after_the_old_one_may_get_its_devices(changed: dict[str, Any]) -> None:
    site = Site("node-a", "node-b")
    site.runs("db", "node-a", claim_spec(shares=3), **changed)
    site.runs("api", "node-b", claim_spec(shares=1), movable=False)

    [step] = site.plan().steps

    assert [(one.node, one.devices) for one in step.moves[0].spoils] == [("node-a", step.moves[0].devices)]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"movable": False}, "without the annotation"),
        ({"owner": None}, "without a controller"),
        ({"owner": "DaemonSet/agent"}, "of a DaemonSet"),
        ({"topologySpreadConstraints": [{"topologyKey": "zone"}]}, "that these rules cannot judge"),
    ],
    ids=["not movable", "no controller", "daemon set", "unjudged"],
)
def test_pods_that_cannot_be_moved_are_counted(changed: dict[str, Any], why: str) -> None:
    site = Site("node-a", "node-b")
    site.runs("web", "node-a", claim_spec(shares=1), **changed)
    site.runs("api", "node-b", claim_spec(shares=1))

    plan = site.plan(only="node-a")

    assert plan.steps == ()
    assert [(why in one.why, one.pods) for one in plan.staying] == [(True, 1)]


def test_a_claim_with_a_life_of_its_own_is_not_moved() -> None:
    site = Site("node-a", "node-b")
    site.runs("web", "node-a", claim_spec(shares=1))
    site.runs("api", "node-b", claim_spec(shares=1), movable=False)
    del site.claims[0]["metadata"]["ownerReferences"]

    assert site.plan().steps == ()


def test_a_pod_is_only_moved_where_it_may_go_and_has_enough_of_everything() -> None:
    site = Site("node-a", "node-b", "node-c")
    asks = [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]
    site.runs("web", "node-a", claim_spec(shares=3), containers=asks)
    for node in ("node-b", "node-c"):
        site.runs(f"api-{node}", node, claim_spec(shares=1), movable=False)
    site.nodes[1]["spec"]["unschedulable"] = True
    site.nodes[2]["status"] = {"allocatable": {"cpu": "1", "pods": "10"}}

    assert site.plan().steps == ()
    site.nodes[2]["status"] = {"allocatable": {"cpu": "4", "pods": "10"}}
    assert moves(site.plan()) == ["team/web: node-a -> node-c"]


def test_a_large_partition_can_be_freed_by_moving_small_ones() -> None:
    site = Site("node-a", "node-b", machine="gh200")
    for name, node in (("one", "node-a"), ("two", "node-a"), ("three", "node-b")):
        site.runs(name, node, claim_spec("mig-small"))

    plan = site.plan("3g.48gb")

    assert plan.what == "partition 3g.48gb"
    assert moves(plan) == ["team/three: node-b -> node-a"]
    assert plan.steps[0].free == 1
    assert plan.steps[0].gains == ("node-b/gpu.nvidia.com/gpu-0009-01-00-0-mig-3g-48gb-4",)


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match="neither a DeviceClass mig-9g nor a MIG profile mig-9g") as caught:
        Site("node-a", machine="gh200").target("mig-9g")

    assert "3g.48gb" in str(caught.value.way_out)


def test_a_device_that_is_shared_without_end_is_counted_to_a_limit() -> None:
    site = Site("node-a")
    for one in site.slices:
        for device in one["spec"].get("devices") or ():
            device.pop("capacity", None)
            device.pop("consumesCounters", None)
    site.runs("web", "node-a", claim_spec(SHARE))

    assert site.plan(SHARE).steps == ()


def test_the_picture_says_what_is_freed_and_what_the_scheduler_may_do() -> None:
    site = Site("node-a", "node-b")
    site.runs("web", "node-a", claim_spec(shares=1))
    site.runs("api", "node-b", claim_spec(shares=1), movable=False)

    shown = plan_text(site.plan(), ("nodes",), wide=False)

    assert shown.startswith("1 move would free 1 whole GPU\n")
    assert "node-b (gpu-0000-3b-00-0-ts-4)" in shown
    assert "not moved: 1 without the annotation" in shown
    assert "not considered, because this user may not read them: nodes" in shown


def scattered(seed: int) -> Site:
    """Three nodes of four GPUs, with shares and whole GPUs on each."""
    chance = random.Random(seed)  # noqa: S311 - not for cryptography
    nodes = [f"node-{n}" for n in range(chance.choice((2, 3)))]
    site = Site(*nodes, machine="l4-quad")
    for number in range(chance.randrange(6, 24)):
        spec = claim_spec(WHOLE) if chance.random() < 0.2 else claim_spec(shares=chance.randrange(1, 4))
        movable = chance.random() < 0.7
        # Spread as after a day of pods that came and went: not all on the first GPU of a node.
        node, avoid = chance.choice(nodes), chance.sample(GPUS, 2)
        if site.allocation(node, spec, avoid) is not None:
            site.runs(f"pod-{number}", node, spec, movable=movable, avoid=avoid)
    return site


@pytest.mark.parametrize("seed", range(12))
def test_after_the_moves_as_many_gpus_are_free_as_was_said(seed: int) -> None:
    site = scattered(seed)
    names = [one["metadata"]["name"] for one in site.nodes]
    target = site.target()

    def free() -> dict[str, int]:
        cluster = site.cluster(target.device_class)
        return {name: free_on(cluster, target, name) for name in names}

    before, steps = free(), site.plan().steps
    for step in steps:
        here = free()
        for move in step.moves:
            carried_out(site, move)
        after = free()
        assert after[step.node] == step.free + 1
        assert all(after[name] >= here[name] for name in names)
    assert sum(free().values()) == sum(before.values()) + len(steps)
    assert site.plan().steps == () or len(site.pods) > sum(len(step.moves) for step in steps)


def carried_out(site: Site, move: Move) -> None:
    """Let the scheduler place the new pod on the first node where it would help, and end the old one."""
    [old] = [one for one in site.claims if one["metadata"]["name"] == f"{move.pod.name}-gpu"]
    found = site.allocation(move.fits[0].node, old["spec"])
    assert found is not None
    assert tuple(devices_of(found)) == move.fits[0].devices
    old["status"] = {**old["status"], "allocation": found}
    [pod] = [one for one in site.pods if one["metadata"]["name"] == move.pod.name]
    pod["spec"]["nodeName"] = move.fits[0].node
