"""A DaemonSet has a pod on each node that suits it, and changes to another template step by step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from envtest.client import paths
from envtest.client.waiting import fresh_namespace, wait_for_list
from envtest.embedded.cluster import EmbeddedCluster
from envtest.embedded.control.workloads.daemon_plan import daemon_tolerations
from tests.envtest.embedded.control.workloads.running_sets import RunningSet, template, version_of

ALL = {"desiredNumberScheduled": 3, "numberAvailable": 3, "updatedNumberScheduled": 3}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(node_count=3) as found:
        yield found


@pytest.fixture
def daemons(cluster: EmbeddedCluster) -> Iterator[RunningSet]:
    """A DaemonSet of version 1 that runs on all three nodes."""
    with fresh_namespace(cluster.api) as namespace:
        found = RunningSet(cluster, namespace, "DaemonSet")
        found.wait(**ALL)
        yield found
        for index in range(3):
            cluster.api.patch(paths.node(f"node-{index}"), {"spec": {"taints": None}})


def nodes(daemons: RunningSet, count: int) -> list[str]:
    return sorted(pod["spec"].get("nodeName", "") for pod in daemons.pods(count))


def test_each_node_has_a_pod_that_tolerates_trouble_of_the_node(daemons: RunningSet) -> None:
    assert nodes(daemons, 3) == ["node-0", "node-1", "node-2"]
    (first, *_) = daemons.pods()
    tolerated = {one["key"].rpartition("/")[2] for one in first["spec"]["tolerations"]}
    assert {"not-ready", "unreachable", "unschedulable", "memory-pressure"} <= tolerated
    assert all("tolerationSeconds" not in one for one in first["spec"]["tolerations"])
    assert first["metadata"]["labels"]["pod-template-generation"] == "1"


def test_a_new_template_replaces_all_pods_and_keeps_the_old_one_as_a_revision(daemons: RunningSet) -> None:
    daemons.change(template=template("2"))

    daemons.wait(**ALL)
    assert {version_of(pod) for pod in daemons.pods(3)} == {"2"}
    assert daemons.revisions() == [1, 2]
    daemons.change(template=template("1"))
    daemons.wait(**ALL)
    assert daemons.revisions() == [2, 3]


def test_an_update_that_fails_stops_at_one_node(daemons: RunningSet) -> None:
    daemons.change(template=template("2", runs=False))

    status = daemons.wait(numberAvailable=2, updatedNumberScheduled=1)

    assert (status["numberReady"], status["numberUnavailable"]) == (2, 1)
    assert sorted(map(version_of, daemons.pods(3))) == ["1", "1", "2"]


def test_with_surge_the_new_pod_runs_before_the_old_one_goes(daemons: RunningSet) -> None:
    surge = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    daemons.change(template=template("2", runs=False), updateStrategy=surge)

    assert sorted(map(version_of, daemons.pods(4))) == ["1", "1", "1", "2"]
    daemons.change(template=template("3"))
    daemons.wait(**ALL)
    assert [version_of(pod) for pod in daemons.pods(3)] == ["3"] * 3


def test_on_delete_a_pod_changes_when_somebody_deletes_it(daemons: RunningSet) -> None:
    daemons.change(template=template("2"), updateStrategy={"type": "OnDelete"})
    daemons.wait(numberAvailable=3, updatedNumberScheduled=0)

    daemons.api.delete(paths.pod(daemons.pods()[0]["metadata"]["name"], daemons.namespace))

    daemons.wait(numberAvailable=3, updatedNumberScheduled=1)


def test_pods_leave_nodes_that_the_template_or_a_taint_excludes(daemons: RunningSet) -> None:
    daemons.change(template=template(nodeSelector={"kubernetes.io/hostname": "node-1"}))
    daemons.wait(desiredNumberScheduled=1, numberAvailable=1, updatedNumberScheduled=1)
    assert nodes(daemons, 1) == ["node-1"]

    taint = {"key": "example.com/closed", "effect": "NoSchedule"}
    daemons.api.patch(paths.node("node-1"), {"spec": {"taints": [taint]}})
    status = daemons.wait(desiredNumberScheduled=0)
    assert (status["numberMisscheduled"], len(daemons.pods())) == (1, 1)
    daemons.api.patch(paths.node("node-1"), {"spec": {"taints": [{**taint, "effect": "NoExecute"}]}})
    daemons.pods(0)


def test_a_pod_that_has_ended_is_deleted_and_made_again(daemons: RunningSet) -> None:
    pod = daemons.pods()[0]
    path = paths.pod(pod["metadata"]["name"], daemons.namespace)

    daemons.api.request(
        "PATCH",
        f"{path}/status",
        {"status": {"phase": "Failed"}},
        content_type="application/merge-patch+json",
    )

    wait_for_list(
        daemons.api,
        paths.pod(namespace=daemons.namespace),
        lambda pods: (
            len(pods) == 3 and pod["metadata"]["name"] not in [one["metadata"]["name"] for one in pods]
        ),
        20,
    )
    where = f"{daemons.namespace}/{pod['metadata']['name']} on node {pod['spec']['nodeName']}"
    assert f"Found failed daemon pod {where}, will try to kill it" in daemons.events()


def test_a_toleration_of_the_template_is_not_repeated() -> None:
    given = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]
    once = [{**given[0], "tolerationSeconds": 5}]

    assert len(daemon_tolerations({"tolerations": given})) == len(daemon_tolerations({}))
    assert daemon_tolerations({"tolerations": once})[0] == given[0]
    assert len(daemon_tolerations({"hostNetwork": True})) == len(daemon_tolerations({})) + 1
