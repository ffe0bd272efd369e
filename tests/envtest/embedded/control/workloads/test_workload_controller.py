"""The controller of workloads keeps on through refusals, collisions, failures and deletions."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.clusters import Object
from tests.envtest.embedded.api.api_calls import ask
from tests.envtest.embedded.control.control_plane import ControlPlane, control_plane

APPS = "/apis/apps/v1/namespaces/default"
LABELS = {"app": "a"}


class Workloads:
    """A cluster without a kubelet, in which a test says how pods are."""

    def __init__(self, cluster: ControlPlane) -> None:
        self.cluster = cluster
        self.server = cluster.server

    def deploy(self, replicas: int = 1, **spec: Any) -> None:
        template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template, **spec}
        self.server.create(f"{APPS}/deployments", {"metadata": {"name": "web"}, "spec": spec})

    def patch(self, path: str, spec: Object) -> None:
        answer = ask(self.server, "PATCH", path, {"spec": spec}, content_type="application/merge-patch+json")
        assert answer.code == 200, answer.body

    @property
    def deployment(self) -> Object:
        (found,) = self.server.objects("deployments", "apps")
        return found

    @property
    def deployment_status(self) -> Object:
        """Empty before the controller has seen the Deployment."""
        found: Object = self.deployment.get("status", {})
        return found

    @property
    def sets(self) -> list[Object]:
        return self.server.objects("replicasets", "apps")

    @property
    def pods(self) -> list[Object]:
        return self.server.objects("pods")

    def say(self, pod: Object, phase: str, *, ready: bool = False) -> None:
        """What a kubelet says of a pod."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": now}]
        self.cluster.set_status(pod["metadata"]["name"], phase=phase, conditions=conditions)

    def wait(self, condition: Callable[[], bool]) -> None:
        self.cluster.wait(condition)

    def all_ready(self, count: int) -> None:
        """Wait for so many pods on nodes, and say of each that it is ready."""
        self.wait(lambda: sum("nodeName" in pod["spec"] for pod in self.pods) == count)
        for pod in self.pods:
            self.say(pod, "Running", ready=True)

    def reason(self, kind: str) -> str:
        """The reason of a condition of the Deployment."""
        held = self.deployment_status.get("conditions", ())
        return next((str(one["reason"]) for one in held if one["type"] == kind), "")


@pytest.fixture
def here() -> Iterator[Workloads]:
    with control_plane() as cluster:
        yield Workloads(cluster)


def test_a_pod_that_ends_is_made_anew(here: Workloads) -> None:
    here.deploy(2)
    here.all_ready(2)
    here.wait(lambda: here.reason("Progressing") == "NewReplicaSetAvailable")
    first, second = here.pods

    here.cluster.end_pod(first["metadata"]["name"])
    here.say(second, "Failed")

    here.wait(lambda: sum(pod["status"]["phase"] != "Failed" for pod in here.pods) == 2)
    here.wait(lambda: here.deployment_status.get("unavailableReplicas") == 2)


def image(version: str) -> Object:
    return {"template": {"spec": {"containers": [{"name": "main", "image": version}]}}}


def test_a_rollout_keeps_to_its_bounds_and_lets_broken_pods_go_first(here: Workloads) -> None:
    here.deploy(4, strategy={"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}})
    here.all_ready(4)
    here.wait(lambda: here.reason("Progressing") == "NewReplicaSetAvailable")
    broken = here.pods[2]["metadata"]["name"]
    here.say(here.pods[2], "Running", ready=False)
    here.wait(lambda: here.deployment_status.get("availableReplicas") == 3)

    here.patch(f"{APPS}/deployments/web", image("two"))

    # One above four, and three have to be available: only the broken one may go before new ones are ready.
    here.wait(lambda: sorted(one["spec"]["replicas"] for one in here.sets) == [2, 3])
    here.wait(lambda: here.cluster.is_leaving(broken))
    assert sum("deletionTimestamp" in pod["metadata"] for pod in here.pods) == 1


def test_a_budget_counts_the_pods_of_a_deployment(here: Workloads) -> None:
    here.deploy(4)
    here.all_ready(4)
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}}
    here.server.create(path, {"metadata": {"name": "b"}, "spec": spec})

    def status() -> Object:
        found: Object = here.server.objects("poddisruptionbudgets", "policy")[0]["status"]
        return found

    here.wait(lambda: status()["disruptionsAllowed"] == 1)
    assert (status()["expectedPods"], status()["desiredHealthy"]) == (4, 3)
    assert here.cluster.told("UnmanagedPods") == []
