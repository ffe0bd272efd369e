"""A gang gets room for all of its pods or none, and goes as a whole if its group says so."""

from __future__ import annotations

from typing import Any

import pytest

from controller.preemptor.kept import TAKEN_SECONDS
from driver.event_reasons import EventReason
from tests.controller.preemptor.played import Played
from tests.controller.preemptor.scene import PODS, Scene

MADE, LOST, PREEMPTED = EventReason.ROOM_MADE, EventReason.ROOM_LOST, EventReason.PREEMPTED_FOR_DEVICES


@pytest.fixture
def full(scene: Scene) -> Scene:
    """A node whose two GPUs two notebooks have, the second of lower priority."""
    scene.node("node-a")
    scene.runs("notebook", 5, "node-a", "gpu-0")
    scene.runs("batch", 1, "node-a", "gpu-1")
    return scene


def gang(scene: Scene, played: Played, count: int) -> None:
    """A gang of so many pods with a GPU each, all of which wait."""
    about = {"namespace": "team", "name": "gang", "uid": "uid-of-gang"}
    played.groups.append(
        {"metadata": about, "spec": {"schedulingPolicy": {"gang": {"minCount": count}}, "priority": 10}}
    )
    for number in range(count):
        scene.waits(f"member-{number}", 10, schedulingGroup={"podGroupName": "gang"})


def test_a_gang_gets_room_for_all_its_pods_at_once(scene: Scene) -> None:
    for node in ("node-a", "node-b"):
        scene.node(node, gpus=1)
        scene.runs(f"batch-{node}", 1, node, "gpu-0")
    played = Played(scene)
    gang(scene, played, 2)
    played.round()
    assert scene.names() == {"member-0", "member-1"}
    assert played.told(MADE) == {"member-0", "member-1"}
    assert "for the gang team/gang of priority 10" in played.text(PREEMPTED)

    for number, node in enumerate(("node-a", "node-b")):
        scene.ends(f"batch-{node}")
        played.round()
        scene.places(f"member-{number}", node, "gpu-0")
        played.clock.now += TAKEN_SECONDS
        played.round()
    assert played.number("gpu_dra_preemptor_rooms_total", outcome="used") == 1
    assert played.told(LOST) == set()


def without_devices(scene: Scene, name: str, **spec: Any) -> None:
    """Replace a waiting pod by one that asks for no devices."""
    path = f"{PODS}/{name}"
    kept = ("schedulingGroup", "priorityClassName")
    plain = {key: one for key, one in scene.pod(name)["spec"].items() if key in kept}
    scene.client.patch(path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
    scene.server.delete(path)
    containers = [{"name": "main", "image": "any"}]
    body = {"metadata": {"name": name}, "spec": {**plain, "containers": containers, **spec}}
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    scene.status(scene.server.create(PODS, body), {"phase": "Pending", "conditions": [refused]})


def test_a_gang_may_have_a_pod_that_needs_no_devices(full: Scene) -> None:
    played = Played(full)
    gang(full, played, 2)
    without_devices(full, "member-1")
    played.round()

    assert full.names() == {"notebook", "member-0", "member-1"}
    assert played.told(MADE) == {"member-0", "member-1"}


def test_a_gang_without_devices_is_not_looked_at(full: Scene) -> None:
    played = Played(full)
    gang(full, played, 1)
    near = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "other"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    without_devices(full, "member-0", affinity=affinity)
    played.round()

    assert played.heard.posted == []


def test_a_further_pod_of_a_gang_gets_room_by_itself(scene: Scene) -> None:
    scene.node("node-a")
    scene.runs("batch", 1, "node-a", "gpu-0")
    scene.runs("first", 10, "node-a", "gpu-1", schedulingGroup={"podGroupName": "gang"})
    played = Played(scene)
    gang(scene, played, 1)
    played.round()

    assert scene.names() == {"first", "member-0"}


def test_a_gang_uses_its_room_with_other_pods_than_those_it_was_made_for(scene: Scene) -> None:
    scene.node("node-a", gpus=1)
    scene.runs("batch", 1, "node-a", "gpu-0")
    played = Played(scene)
    gang(scene, played, 2)
    played.groups[0]["spec"]["schedulingPolicy"]["gang"]["minCount"] = 1
    played.round()
    [made_for] = played.told(MADE)
    [other] = {"member-0", "member-1"} - {made_for}
    scene.ends("batch")
    played.round()
    scene.places(other, "node-a", "gpu-0")
    played.round()

    assert played.number("gpu_dra_preemptor_rooms_total", outcome="used") == 1
    assert played.told(LOST) == set()


def test_a_gang_that_can_only_be_disrupted_as_a_whole_goes_as_a_whole_or_not_at_all(scene: Scene) -> None:
    for node in ("node-a", "node-b"):
        scene.node(node, gpus=1)
        scene.runs(f"old-{node}", 5, node, "gpu-0", schedulingGroup={"podGroupName": "old"})
    played = Played(scene)
    about = {"namespace": "team", "name": "old", "uid": "uid-of-old"}
    basic = {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}, "priority": 20}
    played.groups.append({"metadata": about, "spec": basic})
    scene.waits("urgent", 10)
    played.round()
    assert scene.names() == {"old-node-a", "old-node-b", "urgent"}

    played.groups[0] = {"metadata": about, "spec": {**basic, "priority": 5}}
    played.round()
    assert scene.names() == {"urgent"}
    assert played.told(PREEMPTED) == {"old-node-a", "old-node-b"}


def test_nobody_goes_for_a_part_of_a_gang(full: Scene) -> None:
    played = Played(full)
    gang(full, played, 3)
    played.round()

    assert {"notebook", "batch"} <= full.names()
