"""``gpuctl room --defragment --yes`` moves a share beside another one, so that a GPU is free as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from envtest.client import paths
from envtest.client.waiting import wait_for_list
from envtest.cluster import Cluster
from gpuctl.__main__ import commands
from gpuctl.room.rooms import MOVABLE
from tests.flow.claims import gpu_pod, start, wait_running
from tests.flow.several_machines import installed_on

Object = dict[str, Any]

RULES = """
version: v1
rules:
- offer: whole
  shared: {strategy: TimeSlicing, shares: 4}
"""


@pytest.fixture(scope="module")
def two_nodes(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Two nodes with a T4 each, which is offered whole or in four shares."""
    with installed_on(request.config, ("t4", "t4"), ("gpu", "tiers"), RULES) as (cluster, _):
        yield cluster


def shares(cluster: Cluster, name: str, number: int) -> None:
    """A claim template for so many shares."""
    exactly = {"deviceClassName": "shared-timesliced", "capacity": {"requests": {"shares": str(number)}}}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name}}
    cluster.api.create({**head, "spec": {"spec": spec}}, "default")


def pod_spec(template: str, node: str = "") -> Object:
    """The spec of a pod with a claim from this template; on this node only, if one is named."""
    spec: Object = gpu_pod("x")["spec"]
    spec["resourceClaims"][0]["resourceClaimTemplateName"] = template
    return {**spec, "nodeSelector": {"kubernetes.io/hostname": node}} if node else spec


def cordon(cluster: Cluster, node: str, *, closed: bool) -> None:
    cluster.api.patch(paths.node(node), {"spec": {"unschedulable": closed}})


def test_a_moved_pod_leaves_its_gpu_free_as_a_whole(two_nodes: Cluster) -> None:
    cluster, (first, second) = two_nodes, (node.name for node in two_nodes.nodes)
    for name, number in (("many", 3), ("one", 1)):
        shares(cluster, name, number)
    start(cluster, "default", {**gpu_pod("api"), "spec": pod_spec("one", second)})
    cordon(cluster, second, closed=True)
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels, "annotations": {MOVABLE: "true"}}, "spec": pod_spec("many")}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    head = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    cluster.api.create({**head, "spec": spec}, "default")

    def web(pods: list[Object]) -> list[Object]:
        return [pod for pod in pods if pod["metadata"].get("labels", {}).get("app") == "web"]

    found = wait_for_list(cluster.api, paths.pod(namespace="default"), lambda pods: len(web(pods)) == 1, 60)
    wait_running(cluster, "default", web(found)[0]["metadata"]["name"], 120)
    cordon(cluster, second, closed=False)
    # A pod without a grace period is gone before the scheduler sees the new one, which could go back.
    cordon(cluster, first, closed=True)

    arguments = ["room", "--defragment", "--yes", "--timeout", "120", "--kubeconfig", str(cluster.admin)]
    result = CliRunner().invoke(commands, arguments, catch_exceptions=False)

    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[-2:] == [
        f"{first} has 1 free (whole GPU)",
        "1 moved, 1 more free (whole GPU); stopped: nothing is left to gain",
    ]
    [moved] = web(cluster.api.list_objects(paths.pod(namespace="default")))
    assert moved["spec"]["nodeName"] == second
