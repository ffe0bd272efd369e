"""Whoever ``gpuctl explain`` names has to end, and then the pod runs with the devices that were said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from envtest.client import paths
from envtest.client.waiting import wait_for, wait_gone
from envtest.cluster import Cluster
from gpuctl.__main__ import commands
from gpuctl.explain.victims import MOVABLE
from tests.flow.claims import allocated, gpu_pod, make_template, request, start, wait_running

Object = dict[str, Any]


@pytest.fixture
def urgent(cluster: Cluster, namespace: str) -> Iterator[str]:
    """A PriorityClass of the test's own."""
    name = f"urgent-{namespace}"
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    made = cluster.api.create({**body, "value": 1000})
    yield name
    cluster.api.delete(cluster.api.path_of(made))


def told(cluster: Cluster, *arguments: str) -> Object:
    """What ``gpuctl explain`` tells scripts."""
    command = ["explain", "pod", *arguments, "-o", "json", "--kubeconfig", str(cluster.admin)]
    found: Object = json.loads(CliRunner().invoke(commands, command, catch_exceptions=False).output)
    return found


def test_the_pods_that_are_named_make_room(cluster: Cluster, namespace: str, urgent: str) -> None:
    make_template(cluster, namespace, request(count=4))
    for name, priority in (("batch", ""), ("train", urgent)):
        pod = gpu_pod(name)
        pod["metadata"]["annotations"] = {MOVABLE: "true" if priority else "false"}
        pod["spec"] |= {"priorityClassName": priority} if priority else {}
        start(cluster, namespace, pod)
    serve = gpu_pod("serve")
    serve["spec"]["priorityClassName"] = urgent
    cluster.api.create(serve, namespace)

    def refused(pod: Object) -> bool:
        conditions = pod.get("status", {}).get("conditions", ())
        return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)

    wait_for(cluster.api, paths.pod("serve", namespace), refused)
    answer = told(cluster, "serve", "-n", namespace)
    victims = {
        one["policy"]: [[pod["name"] for pod in there["pods"]] for there in one["victims"]]
        for one in answer["policies"]
    }
    assert victims == {"lower-priority": [["batch"]], "movable": [["train"]], "any": [["batch"]]}
    [first] = answer["policies"][0]["victims"]

    cluster.api.delete(paths.pod("batch", namespace))
    wait_gone(cluster.api, paths.pod("batch", namespace))

    wait_running(cluster, namespace, "serve", 120)
    assert told(cluster, "serve", "-n", namespace)["verdict"] == "runs"
    claims = cluster.api.list_objects(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")
    [own] = [one for one in claims if one["metadata"]["ownerReferences"][0]["name"] == "serve"]
    assert sorted(one.rpartition("/")[2] for one in first["gains"]) == sorted(allocated(own))
