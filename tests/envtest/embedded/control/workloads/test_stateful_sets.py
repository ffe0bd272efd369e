"""The pods of a StatefulSet start, change and end in the order of their numbers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from envtest.client import paths
from envtest.client.waiting import fresh_namespace
from envtest.embedded.cluster import EmbeddedCluster
from tests.envtest.embedded.control.workloads.running_sets import (
    RunningSet,
    hash_of,
    template,
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as found:
        yield found


@pytest.fixture
def namespace(cluster: EmbeddedCluster) -> Iterator[str]:
    with fresh_namespace(cluster.api) as name:
        yield name


def running(cluster: EmbeddedCluster, namespace: str) -> RunningSet:
    """A StatefulSet of version 1 whose three pods run."""
    found = RunningSet(cluster, namespace, "StatefulSet", replicas=3, serviceName="web")
    found.wait(replicas=3, availableReplicas=3)
    return found


def names(pods: RunningSet, count: int) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods.pods(count)]


def test_pods_have_numbers_names_and_the_revision(cluster: EmbeddedCluster, namespace: str) -> None:
    pods = running(cluster, namespace)

    assert names(pods, 3) == ["set-0", "set-1", "set-2"]
    first = pods.pods()[0]
    labels, spec = first["metadata"]["labels"], first["spec"]
    assert labels["statefulset.kubernetes.io/pod-name"] == "set-0"
    assert labels["apps.kubernetes.io/pod-index"] == "0"
    assert (spec["hostname"], spec["subdomain"]) == ("set-0", "web")
    status = pods.wait(readyReplicas=3, currentReplicas=3, updatedReplicas=3)
    assert status["currentRevision"] == status["updateRevision"] == hash_of(first)
    assert "Create Pod set-0 in StatefulSet set successful" in pods.events()


def test_a_pod_that_is_not_ready_keeps_the_next_ones_waiting(
    cluster: EmbeddedCluster, namespace: str
) -> None:
    pods = RunningSet(cluster, namespace, "StatefulSet", replicas=3, template=template(runs=False))

    pods.wait(replicas=1, readyReplicas=0)

    assert names(pods, 1) == ["set-0"]


def test_in_parallel_all_pods_start_at_once(cluster: EmbeddedCluster, namespace: str) -> None:
    spec = {"podManagementPolicy": "Parallel", "ordinals": {"start": 5}, "template": template(runs=False)}
    pods = RunningSet(cluster, namespace, "StatefulSet", replicas=2, **spec)

    assert names(pods, 2) == ["set-5", "set-6"]


def test_an_update_goes_from_the_highest_number_down_and_stops_at_a_failure(
    cluster: EmbeddedCluster, namespace: str
) -> None:
    pods = running(cluster, namespace)

    pods.change(template=template("2", runs=False))

    pods.wait_versions("1", "1", "2")
    status = pods.wait(readyReplicas=2, updatedReplicas=1, currentReplicas=2)
    assert status["currentRevision"] != status["updateRevision"]
    # A pod that never got ready has to be deleted by hand after a rollback, as documented by Kubernetes.
    pods.change(template=template("3"))
    cluster.api.delete(paths.pod("set-2", namespace))
    pods.wait_versions("3", "3", "3")
    status = pods.wait(availableReplicas=3, updatedReplicas=3)
    assert status["currentRevision"] == status["updateRevision"]
    assert pods.revisions() == [1, 2, 3]


def test_below_the_partition_pods_keep_the_old_template(cluster: EmbeddedCluster, namespace: str) -> None:
    pods = running(cluster, namespace)

    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    pods.change(template=template("2"), updateStrategy=rolling)
    pods.wait_versions("1", "1", "2")
    cluster.api.delete(paths.pod("set-0", namespace))

    pods.wait(availableReplicas=3, updatedReplicas=1)
    pods.wait_versions("1", "1", "2")


def test_on_delete_a_pod_changes_when_somebody_deletes_it(cluster: EmbeddedCluster, namespace: str) -> None:
    pods = running(cluster, namespace)
    pods.change_by_patch(template=template("2"), updateStrategy={"type": "OnDelete", "rollingUpdate": None})
    pods.wait(availableReplicas=3, updatedReplicas=0)

    cluster.api.delete(paths.pod("set-1", namespace))

    pods.wait_versions("1", "2", "1")


def test_the_highest_numbers_go_first_and_their_volume_claims_stay(
    cluster: EmbeddedCluster, namespace: str
) -> None:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"metadata": {"name": "data"}, "spec": wanted}
    mounted = template()
    mounted["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    spec = {"template": mounted, "volumeClaimTemplates": [claim]}
    pods = RunningSet(cluster, namespace, "StatefulSet", replicas=2, **spec)
    pods.wait(availableReplicas=2)

    pods.change(replicas=1)

    assert names(pods, 1) == ["set-0"]
    (volume,) = pods.pods()[0]["spec"]["volumes"]
    assert volume == {"name": "data", "persistentVolumeClaim": {"claimName": "data-set-0"}}
    found = cluster.api.list_objects(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims")
    assert [(one["metadata"]["name"], one["status"]["phase"]) for one in found] == [
        ("data-set-0", "Pending"),
        ("data-set-1", "Pending"),
    ]
