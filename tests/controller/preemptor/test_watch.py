"""The watches notice what can change a decision, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from controller.preemptor import watch
from controller.preemptor.watch import Stored, Watch
from driver.process.service import Service
from tests.controller.preemptor.scene import CLAIMS, DRA, PODS, Scene
from tests.eventually import eventually


class Watched:
    """Watches of a scene, and how often they said that something changed."""

    def __init__(self, scene: Scene, client: Any = None) -> None:
        self.scene = scene
        self.service = Service()
        self.changes = 0
        self._lock = threading.Lock()
        self.watch = Watch(client or scene.client, self.service.stop_event, self._changed)
        self.watch.start(self.service)
        eventually("all is watched", self.watch.why_not, lambda text: not text)

    def _changed(self) -> None:
        with self._lock:
            self.changes += 1

    def now(self) -> Stored:
        """What is stored, once the watches have seen everything."""
        marker = self.scene.server.create(
            f"{DRA}/deviceclasses", {"metadata": {"generateName": "m"}, "spec": {}}
        )
        name = marker["metadata"]["name"]

        def seen() -> bool:
            stored = self.watch.stored()
            pods = {one["metadata"]["resourceVersion"] for one in stored["pods"]}
            claims = {one["metadata"]["resourceVersion"] for one in stored["claims"]}
            wanted = (
                self.scene.server.objects("pods"),
                self.scene.server.objects("resourceclaims", "resource.k8s.io"),
            )
            versions = [{one["metadata"]["resourceVersion"] for one in some} for some in wanted]
            return [pods, claims] == versions and name in {
                one["metadata"]["name"] for one in stored["classes"]
            }

        eventually("all is seen", seen)
        self.scene.server.delete(f"{DRA}/deviceclasses/{name}")
        eventually(
            "the marker is gone",
            lambda: name not in {one["metadata"]["name"] for one in self.watch.stored()["classes"]},
        )
        return self.watch.stored()


@pytest.fixture
def watched(scene: Scene) -> Iterator[Watched]:
    scene.node("node-a")
    scene.runs("train", 1, "node-a", "gpu-0")
    found = Watched(scene)
    yield found
    found.service.stop()


MARKER = 2
"""How many changes ``Watched.now`` makes itself."""


def test_what_a_driver_reports_about_a_claim_changes_no_decision(watched: Watched) -> None:
    before = watched.now()
    claim = watched.scene.client.get(f"{CLAIMS}/train")
    watched.scene.status(claim, {**claim["status"], "devices": []}, CLAIMS)
    watched.scene.client.patch(
        f"{PODS}/train", {"metadata": {"annotations": {"a": "b"}}}, "application/merge-patch+json"
    )

    assert watched.now().version == before.version + MARKER


def test_a_claim_that_becomes_free_can_change_one(watched: Watched) -> None:
    before = watched.now()
    watched.scene.ends("train")

    assert watched.now().version > before.version + MARKER


def test_pods_without_a_node_are_counted_apart(watched: Watched) -> None:
    before = watched.now()
    watched.scene.waits("urgent", 5)
    after = watched.now()

    assert after.pods_version > before.pods_version
    assert after.version == before.version + MARKER + 1, "its claim is new"


def test_a_pod_that_has_ended_matters_only_with_a_claim() -> None:
    ended: dict[str, Any] = {"metadata": {}, "spec": {}, "status": {"phase": "Succeeded"}}
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
