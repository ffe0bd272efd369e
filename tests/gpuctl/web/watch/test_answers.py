"""Explain's answers about pods that wait are worked out one by one, and costly ones hold up nobody twice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from envtest.embedded.server import EmbeddedApiServer
from gpuctl.cli.cluster import ClusterView, connect_client
from gpuctl.web.seen.view import Objects, View
from gpuctl.web.watch.answers import Answer, Answers, explained
from gpuctl.web.watch.state import ClusterState, Kind
from tests.costly_selector import COSTLY_SELECTOR
from tests.gpuctl.explain.served import Served
from tests.gpuctl.explain.site import WHOLE, Site, claim_spec
from tests.gpuctl.fleet.test_nodes import slices

Object = dict[str, Any]

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CHEAP = "device.driver == 'nobody.example.com'"
LATER_SECONDS = 1000.0


class Scene:
    """A node with eight GPUs, and pods that wait; time passes when the test says so."""

    def __init__(self, api_server: EmbeddedApiServer, folder: Path) -> None:
        self.now = 0.0
        client = connect_client(api_server.write_kubeconfig(folder / "config"))
        self.answers = Answers(client, lambda: None, lambda: self.now)
        self._state = ClusterState()
        self._versions = 0
        self.take("slice", *slices(""))
        self.take("class", device_class("gpu", "device.driver == 'gpu.nvidia.com'"))

    def take(self, kind: Kind, *items: Object, gone: bool = False) -> View:
        """The cluster has these objects now, or has them no more."""
        for one in items:
            self._versions += 1
            one["metadata"]["resourceVersion"] = str(self._versions)
            self._state.update(kind, one, NOW, gone=gone, news=True)
        view = self._state.refresh(NOW, synced=True, failing=(), has_time=lambda: True)
        self.answers.update(view)
        return view

    def wait(self, *names: str, selector: str) -> None:
        """Pods wait, each with a claim of its own."""
        for name in names:
            self.take("claim", claim(name, selector))
            self.take("pod", pod(name))

    def known(self, name: str) -> Answer:
        answer = self.answers.known(f"team/{name}")
        assert answer is not None
        return answer

    def answered(self) -> list[str]:
        """The pods whose answers are worked out until none is due, in this order."""
        order: list[str] = []
        before = self._explanations()
        while self.answers.answer_next() is not None:
            after = self._explanations()
            order += [key for key, one in after.items() if one is not before.get(key)]
            before = after
        return order

    def _explanations(self) -> dict[str, object]:
        found = {
            name: self.answers.known(f"team/{name}") for name in ("a-costly", "b-costly", "cheap", "other")
        }
        return {name: answer.explanation for name, answer in found.items() if answer}


def device_class(name: str, selector: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": selector}}]}}


def claim(name: str, selector: str) -> Object:
    exactly = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": selector}}],
    }
    return {
        "metadata": {"name": name, "namespace": "team", "uid": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def pod(name: str) -> Object:
    return {
        "metadata": {"name": name, "namespace": "team", "uid": f"pod-{name}"},
        "spec": {
            "containers": [{"name": "main", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        },
        "status": {"phase": "Pending"},
    }


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr("gpuctl.explain.answer.SELECTOR_SECONDS", 0.02)
    with EmbeddedApiServer() as api_server:
        yield Scene(api_server, tmp_path)


def kinds(answer: Answer) -> list[str]:
    assert answer.explanation is not None
    return [one.kind for one in answer.explanation.findings]


def test_whose_end_would_make_room_is_said_first(tmp_path: Path) -> None:
    with EmbeddedApiServer() as server:
        served, site = Served(server, tmp_path), Site("node-a")
        site.runs("batch", "node-a", claim_spec(WHOLE))
        served.load(site, site.waits("serve", claim_spec(WHOLE), priority=10))
        pods = {f"team/{one['metadata']['name']}": one for one in server.objects("pods")}
        objects = Objects(
            nodes=tuple(server.objects("nodes")),
            slices=tuple(server.objects("resourceslices", "resource.k8s.io")),
            classes=tuple(server.objects("deviceclasses", "resource.k8s.io")),
            claims=tuple(server.objects("resourceclaims", "resource.k8s.io")),
            pods=pods,
        )
        reader = ClusterView(connect_client(Path(served.kubeconfig)))

        told = explained(reader, pods["team/serve"], View(objects=objects))

    assert told.findings[0].message == "it would fit on node-a if team/batch, of lower priority, ended"


def test_what_was_too_costly_is_not_worked_out_again_because_something_else_is_otherwise(
    scene: Scene,
) -> None:
    scene.take("class", device_class("more", CHEAP))
    scene.wait("a-costly", selector=COSTLY_SELECTOR)
    scene.wait("cheap", selector=CHEAP)
    assert scene.answered() == ["a-costly", "cheap"]
    assert (kinds(scene.known("a-costly")), kinds(scene.known("cheap"))) == (["costly"], ["no-match"])

    told = {**pod("a-costly"), "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled"}]}}
    scene.take("pod", told)
    scene.take("claim", claim("somebody's", COSTLY_SELECTOR))
    scene.take("class", device_class("gpu", "device.driver == 'gpu.nvidia.com'"))
    view = scene.take("node", {"metadata": {"name": "node-a"}, "spec": {"unschedulable": True}})
    scene.now += LATER_SECONDS
    scene.answers.ask("team/a-costly")

    assert scene.answered() == ["cheap"]
    assert scene.known("a-costly").cluster == view.cluster


@pytest.mark.parametrize("changed", ["claim", "class", "pod"])
def test_what_was_too_costly_is_worked_out_again_when_its_claim_or_a_class_or_the_pod_is_otherwise(
    scene: Scene, changed: Kind
) -> None:
    scene.wait("a-costly", selector=COSTLY_SELECTOR)
    scene.answered()
    scene.now += LATER_SECONDS
    others: dict[Kind, Object] = {
        "claim": claim("a-costly", CHEAP),
        "class": device_class("gpu", CHEAP),
        "pod": {**pod("a-costly"), "spec": {"containers": [], "resourceClaims": []}},
    }

    scene.take(changed, others[changed])

    assert scene.answered() == ["a-costly"]
    assert "costly" not in kinds(scene.known("a-costly"))
    scene.take("pod", pod("a-costly"), gone=True)
    assert scene.answers.known("team/a-costly") is None


def test_pods_that_were_too_costly_wait_behind_all_others_also_when_somebody_asks(scene: Scene) -> None:
    scene.wait("a-costly", "b-costly", selector=COSTLY_SELECTOR)
    scene.wait("cheap", "other", selector=CHEAP)
    assert sorted(scene.answered()) == ["a-costly", "b-costly", "cheap", "other"]
    scene.now += LATER_SECONDS

    scene.take("class", device_class("more", CHEAP))
    scene.answers.ask("team/b-costly")
    scene.answers.ask("team/other")

    assert scene.answered() == ["other", "cheap", "b-costly", "a-costly"]
