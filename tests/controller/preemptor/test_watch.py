"""The watches notice what can change a decision, and nothing else."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from controller.preemptor import watch
from controller.preemptor.watch import Watch
from tests.clusters import Object, Service
from tests.controller.preemptor.scene import DRA, Scene
from tests.eventually import eventually


class Watched:
    """Watches of a scene."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.service = Service()
        self.watch = Watch(scene.client, self.service.stop_event, lambda: None)
        self.watch.start(self.service)
        eventually("all is watched", self.watch.why_not, lambda text: not text)


@pytest.fixture
def watched(scene: Scene) -> Iterator[Watched]:
    scene.node("node-a")
    scene.runs("train", 1, "node-a", "gpu-0")
    found = Watched(scene)
    yield found
    found.service.stop()


ITEM: Object = {
    "metadata": {"uid": "u", "labels": {"app": "a"}},
    "spec": {"nodeName": "node-a"},
    "status": {"phase": "Running", "allocation": {"devices": {}}, "reservedFor": [{"uid": "pod"}]},
}
READY = {"type": "Ready", "status": "True"}


@pytest.mark.parametrize(
    ("kind", "part", "change", "decides"),
    [
        ("pods", "metadata", {"annotations": {"a": "b"}}, False),
        ("pods", "metadata", {"labels": {"app": "b"}}, True),
        ("pods", "metadata", {"deletionTimestamp": "now"}, True),
        ("pods", "status", {"conditions": [{**READY, "type": "example.com/Other"}]}, False),
        ("pods", "status", {"conditions": [READY]}, True),
        ("pods", "status", {"nominatedNodeName": "node-b"}, True),
        ("claims", "status", {"devices": []}, False),
        ("claims", "status", {"reservedFor": []}, True),
        ("claims", "status", {"allocation": None}, True),
        ("nodes", "status", {"conditions": [READY]}, False),
        ("nodes", "status", {"allocatable": {"cpu": "1"}}, True),
        ("budgets", "status", {"conditions": [READY]}, False),
        ("budgets", "status", {"disruptionsAllowed": 1}, True),
        ("slices", "metadata", {"annotations": {"a": "b"}}, False),
        ("slices", "spec", {"devices": []}, True),
    ],
)
def test_what_decisions_depend_on_is_news(kind: watch.Kind, part: str, change: Object, decides: bool) -> None:
    changed = {**ITEM, part: {**ITEM[part], **change}}
    assert (watch.facts(kind, changed) != watch.facts(kind, ITEM)) == decides


def test_pods_without_a_node_are_counted_apart(watched: Watched) -> None:
    before = watched.watch.stored()
    watched.scene.waits("urgent", 5)
    eventually("it is counted", lambda: watched.watch.stored().pods_version > before.pods_version)
    after = eventually("its claim is new", watched.watch.stored, lambda now: now.version > before.version)
    assert after.version == before.version + 1


def test_what_decides_nothing_is_no_news(scene: Scene) -> None:
    told: list[int] = []
    found = Watch(scene.client, threading.Event(), lambda: told.append(found.stored().version))
    for change in ({}, {"annotations": {"a": "b"}}, {"labels": {"app": "b"}}, {"labels": {"app": "b"}}):
        item = {**ITEM, "metadata": {**ITEM["metadata"], "name": "a", **change}}
        found._note("pods", item, gone=False)  # noqa: SLF001 - an event, without waiting for what never comes
    assert told == [1, 2]


def test_a_pod_that_has_ended_matters_only_with_a_claim() -> None:
    ended: Object = {"metadata": {}, "spec": {}, "status": {"phase": "Succeeded"}}
    assert not watch.matters("pods", ended)
    assert watch.matters("pods", {**ended, "spec": {"resourceClaims": [{"name": "gpu"}]}})
    assert watch.matters("pods", {**ended, "status": {"phase": "Running"}})


def test_it_is_not_up_to_date_while_the_api_server_is_away(watched: Watched) -> None:
    watched.scene.server.stop()
    eventually("it knows", watched.watch.why_not)
    watched.scene.server.start()
    eventually("it is back", watched.watch.why_not, lambda text: not text)


def test_a_kind_that_comes_later_is_not_waited_for_and_watched_then(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_SERVED_AGAIN_SECONDS", 0.01)
    served, get = threading.Event(), scene.client.get

    def get_once_served(path: str, *more: Any, **params: Any) -> Any:
        found = get(path, *more, **params)
        if path == DRA and not served.is_set():
            found["resources"] = [one for one in found["resources"] if one["name"] != "devicetaintrules"]
        return found

    monkeypatch.setattr(scene.client, "get", get_once_served)
    found = Watched(scene)
    try:
        assert scene.server.count("list", "devicetaintrules") == 0
        served.set()
        eventually("it is served", lambda: scene.server.count("list", "devicetaintrules"))
        taint = {"key": "sick", "effect": "NoSchedule"}
        rule = {"metadata": {"name": "rule"}, "spec": {"deviceSelector": {}, "taint": taint}}
        scene.server.create(f"{DRA}/devicetaintrules", rule)
        eventually("the rule is seen", lambda: found.watch.stored()["taint_rules"])
    finally:
        found.service.stop()
