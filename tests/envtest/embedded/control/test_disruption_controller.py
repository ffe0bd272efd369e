"""PodDisruptionBudgets hold back evictions in the embedded cluster as in Kubernetes."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.clusters import Object
from tests.envtest.embedded.api.api_calls import PODS, Answer, ask, pod
from tests.envtest.embedded.control.control_plane import ControlPlane, control_plane

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."
SELECTOR = {"matchLabels": {"app": "a"}}


@pytest.fixture
def cluster() -> Iterator[ControlPlane]:
    """Two pods of one application that run on a node."""
    with control_plane() as found:
        for name in ("one", "two"):
            run(found, name)
        yield found


def run(cluster: ControlPlane, name: str) -> None:
    labelled = pod(name)
    labelled["metadata"]["labels"] = {"app": "a"}
    cluster.server.create(PODS, labelled)
    cluster.wait_bound(name)
    cluster.set_status(name, phase="Running", conditions=[{"type": "Ready", "status": "True"}])


def add_budget(cluster: ControlPlane, **spec: Any) -> None:
    cluster.server.create(BUDGETS, {"metadata": {"name": "b"}, "spec": {"selector": SELECTOR, **spec}})
    cluster.wait(lambda: budget(cluster)["status"].get("observedGeneration") == 1)


def budget(cluster: ControlPlane) -> Object:
    (found,) = cluster.server.objects("poddisruptionbudgets", "policy")
    return found


def evict(cluster: ControlPlane, name: str) -> Answer:
    return ask(cluster.server, "POST", f"{PODS}/{name}/eviction", {"metadata": {"name": name}})


def test_as_many_pods_are_evicted_as_the_budget_allows(cluster: ControlPlane) -> None:
    add_budget(cluster, minAvailable=1)
    assert budget(cluster)["status"]["disruptionsAllowed"] == 1

    first, second = evict(cluster, "one"), evict(cluster, "two")

    assert first.code == 201
    assert "deletionTimestamp" in cluster.pod("one")["metadata"]
    target = cluster.pod("one")["status"]["conditions"][-1]
    assert (target["type"], target["reason"]) == ("DisruptionTarget", "EvictionByEvictionAPI")
    assert (second.code, second.body["reason"], second.body["message"]) == (429, "TooManyRequests", VIOLATES)
    assert "deletionTimestamp" not in cluster.pod("two")["metadata"]
    cluster.wait(lambda: "disruptedPods" not in budget(cluster)["status"])  # one is deleted by now
    (cause,) = evict(cluster, "two").body["details"]["causes"]
    why = "The disruption budget b needs 1 healthy pods and has 1 currently"
    assert (cause["reason"], cause["message"]) == ("DisruptionBudget", why)
