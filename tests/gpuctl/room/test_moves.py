"""With ``--yes`` pods are moved one at a time, for as long as that helps; every stop says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from driver.kube.client import KubeClient
from gpuctl.cli.cluster import ClusterView, connect_client
from gpuctl.repartition import waiting
from gpuctl.room.moves import Done, Look, carry_out
from gpuctl.room.rooms import MOVABLE
from tests.envtest.embedded.control.control_plane import RESOURCE, ControlPlane, control_plane, head
from tests.eventually import eventually
from tests.gpuctl.explain.site import SHARE, claim_spec, shipped_classes, slices_of

APPS = "/apis/apps/v1/namespaces/default/deployments"


class Walk:
    """Two nodes with such a machine each; ``run`` moves pods, while the kubelets of both nodes are played."""

    def __init__(self, plane: ControlPlane, folder: Path, machine: str = "t4") -> None:
        self.plane = plane
        self.said: list[str] = []
        self.ready = True
        self._acts: list[tuple[str, Callable[[], None]]] = []
        kubeconfig = plane.server.write_kubeconfig(folder / "config")
        self.client: KubeClient = connect_client(kubeconfig)
        plane.add_node("node-b", unschedulable=True)
        for one in shipped_classes():
            if one["metadata"]["name"] != "gpu.nvidia.com":
                plane.server.create(f"{RESOURCE}/deviceclasses", one)
        for node in ("node-a", "node-b"):
            for one in slices_of(node, machine):
                plane.server.create(f"{RESOURCE}/resourceslices", one)

    def deploys(self, name: str, shares: int, *, movable: bool = True, replicas: int = 1) -> None:
        """A Deployment whose pods all run."""
        template = {**head("ResourceClaimTemplate", name), "spec": {"spec": claim_spec(SHARE, shares)}}
        path = f"{RESOURCE}/namespaces/default/resourceclaimtemplates"
        self.plane.server.create(path, template)
        metadata: dict[str, Any] = {"labels": {"app": name}}
        if movable:
            metadata["annotations"] = {MOVABLE: "true"}
        container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
        spec = {
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}],
        }
        body = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": metadata, "spec": spec},
            },
        }
        self.plane.server.create(APPS, body)
        eventually(f"{name} runs", lambda: self._kubelets() and len(self.running(name)) == replicas)

    def close(self, node: str, *, closed: bool = True) -> None:
        """Cordon a node, or open it again."""
        stored = self.plane.node(node)
        self.plane.server.replace(
            f"/api/v1/nodes/{node}", {**stored, "spec": {**stored.get("spec", {}), "unschedulable": closed}}
        )

    def running(self, app: str) -> list[str]:
        """The nodes of the running pods of a Deployment."""
        return [
            pod["spec"]["nodeName"]
            for pod in self.pods()
            if pod["metadata"]["labels"]["app"] == app and pod["status"]["phase"] == "Running"
        ]

    def pods(self) -> list[dict[str, Any]]:
        """All pods."""
        found: list[dict[str, Any]] = self.plane.server.objects("pods")
        return found

    def _kubelets(self) -> bool:
        """Start pods that are bound; end those that are being deleted, once another is bound."""
        pods = self.pods()
        waits = any(not pod["spec"].get("nodeName") for pod in pods)
        for pod in pods:
            name = pod["metadata"]["name"]
            if "deletionTimestamp" in pod["metadata"]:
                apps = [one for one in pods if one["metadata"]["labels"] == pod["metadata"]["labels"]]
                if not waits and len(apps) > 1:
                    self.plane.end_pod(name)
            elif pod["spec"].get("nodeName") and pod["status"].get("phase") != "Running":
                ready = [{"type": "Ready", "status": "True" if self.ready else "False"}]
                self.plane.set_status(name, phase="Running", conditions=ready)
        return True

    def run(self, timeout_seconds: float = 60.0, node: str | None = None) -> Done:
        look = Look(ClusterView(self.client), None, node)
        return carry_out(self.client, look, timeout_seconds, self._say, lambda _: self._turn())

    def _turn(self) -> None:
        self._kubelets()
        waiting.sleep(0.01)

    def when(self, said: str, act: Callable[[], None]) -> None:
        """Do this each time that a line with these words is said."""
        self._acts.append((said, act))

    def _say(self, line: str) -> None:
        self.said.append(line)
        for words, act in self._acts:
            if words in line:
                act()

    def evictions(self) -> int:
        """How many evictions were asked for."""
        return sum(one.subresource == "eviction" for one in self.plane.server.requests)


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    with control_plane() as plane:
        yield Walk(plane, tmp_path)


def scattered(walk: Walk, shares: int) -> None:
    """A movable pod on node-a with so many of the four shares, and one that stays with one on node-b."""
    walk.deploys("web", shares)
    walk.close("node-a")
    walk.close("node-b", closed=False)
    walk.deploys("api", 1, movable=False)
    walk.close("node-a", closed=False)


def test_a_pod_is_moved_and_its_gpu_is_free_as_a_whole(walk: Walk) -> None:
    scattered(walk, 3)

    done = walk.run()

    assert (done.complete, done.freed, done.why) == (True, 1, "nothing is left to gain")
    assert [one.landing.node for one in done.moved] == ["node-b"]
    assert walk.running("web") == ["node-b"]
    assert walk.evictions() == 1
    assert walk.said[-1] == "node-a has 1 free (whole GPU)"


def test_after_each_move_it_looks_again_and_all_pods_of_a_gpu_are_moved(walk: Walk) -> None:
    walk.deploys("web", 2)
    walk.deploys("batch", 1)
    walk.close("node-a")
    walk.close("node-b", closed=False)
    walk.deploys("api", 1, movable=False)
    walk.close("node-a", closed=False)
    # The batch pod would fit on node-a as well, beside the old one.
    walk.when("evicting", lambda: walk.close("node-a"))

    done = walk.run(node="node-a")

    assert (done.complete, done.freed, len(done.moved)) == (True, 1, 2)
    assert (walk.running("web"), walk.running("batch")) == (["node-b"], ["node-b"])


def test_other_pods_of_the_controller_are_not_taken_for_the_new_one(walk: Walk) -> None:
    walk.deploys("web", 1, replicas=2)
    walk.close("node-a")
    walk.close("node-b", closed=False)
    walk.deploys("api", 1, movable=False)

    done = walk.run()

    assert (done.complete, done.freed, len(done.moved)) == (True, 1, 2)
    assert walk.running("web") == ["node-b", "node-b"]


def test_it_stops_when_the_new_pod_lands_where_the_old_one_was(walk: Walk) -> None:
    scattered(walk, 1)
    walk.when("evicting", lambda: walk.close("node-b"))

    done = walk.run(node="node-a")

    assert (done.complete, done.freed) == (False, 0)
    assert done.why.endswith("has landed where the old one was: node-a/gpu.nvidia.com/gpu-0000-3b-00-0-ts-4")
    assert walk.evictions() == 1


@pytest.mark.parametrize("again", [False, True], ids=["for good", "until it has moved"])
def test_it_stops_when_a_move_has_taken_as_much_as_it_freed(tmp_path: Path, *, again: bool) -> None:
    with control_plane() as plane:
        walk = Walk(plane, tmp_path, "l4-quad")
        scattered(walk, 3)
        walk.when("evicting", lambda: walk.close("node-b"))
        if again:
            walk.when("in place of", lambda: walk.close("node-b", closed=False))

        done = walk.run(node="node-a")

    assert (done.complete, done.freed, len(done.moved)) == (False, 0, 1)
    assert done.why == "the last move has brought node-a no nearer to another whole GPU"


def _budget(walk: Walk, available: int) -> None:
    """A budget of the pods that keeps so many of them; the controller has counted it."""
    spec = {"minAvailable": available, "selector": {"matchLabels": {"app": "web"}}}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}}
    walk.plane.server.create(
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets", {**body, "spec": spec}
    )
    budgets = walk.plane.server.objects
    walk.plane.wait(
        lambda: "disruptionsAllowed" in budgets("poddisruptionbudgets", "policy")[0].get("status", {})
    )


def test_a_refused_eviction_ends_it(walk: Walk) -> None:
    scattered(walk, 3)
    _budget(walk, 1)

    done = walk.run()

    assert (done.complete, done.moved) == (False, ())
    assert "was refused: " in done.why
    assert "disruption budget" in done.why
    assert walk.running("web") == ["node-a"]


def test_a_budget_that_is_counted_late_does_not_end_it(walk: Walk) -> None:
    scattered(walk, 3)
    _budget(walk, 1)

    budgets = walk.plane.server.objects

    def count_again() -> None:
        (stored,) = budgets("poddisruptionbudgets", "policy")
        path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web"
        walk.plane.server.replace(path, {**stored, "spec": {**stored["spec"], "minAvailable": 0}})
        walk.plane.wait(
            lambda: budgets("poddisruptionbudgets", "policy")[0]["status"]["disruptionsAllowed"] == 1
        )

    walk.when("may not be evicted yet", count_again)

    done = walk.run()

    assert done.complete, done.why
    assert walk.running("web") == ["node-b"]


def test_a_new_pod_that_does_not_run_in_time_ends_it(walk: Walk) -> None:
    scattered(walk, 3)

    def close_both() -> None:
        walk.close("node-a")
        walk.close("node-b")

    walk.when("evicting", close_both)

    done = walk.run(timeout_seconds=0.3)

    assert (done.complete, done.moved) == (False, ())
    assert "is not replaced in time: pod default/web-" in done.why


def test_a_new_pod_counts_as_running_once_it_is_ready(walk: Walk) -> None:
    scattered(walk, 3)
    walk.ready = False

    done = walk.run(timeout_seconds=0.5)

    assert not done.moved
    assert "is not replaced in time: the new pod default/web-" in done.why


def test_a_pod_that_is_gone_before_its_eviction_is_looked_at_again(walk: Walk) -> None:
    scattered(walk, 3)

    def scale_down() -> None:
        [stored] = [
            one
            for one in walk.plane.server.objects("deployments", "apps")
            if one["metadata"]["name"] == "web"
        ]
        walk.plane.server.replace(f"{APPS}/web", {**stored, "spec": {**stored["spec"], "replicas": 0}})
        [pod] = [one for one in walk.pods() if one["metadata"]["labels"]["app"] == "web"]
        walk.plane.wait(lambda: walk.plane.is_leaving(pod["metadata"]["name"]))
        walk.plane.end_pod(pod["metadata"]["name"])
        walk.plane.wait(lambda: len(walk.plane.claims()) == 1)

    walk.when("evicting", scale_down)

    done = walk.run()

    assert (done.complete, done.moved, done.why) == (True, (), "nothing is left to gain")
