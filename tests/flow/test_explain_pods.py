"""``gpuctl explain`` of pods that have a node, have ended, or ask a device plugin, on either cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from envtest.client import paths
from envtest.client.waiting import wait_for, wait_for_list
from envtest.cluster import Cluster
from gpuctl.demo.driver_node import DriverNode
from tests.eventually import eventually
from tests.flow.claims import gpu_pod, make_template, wait_running
from tests.flow.scene import Scene
from tests.flow.test_explain import explained

Told = tuple[int, dict[str, Any]]


def told(cluster: Cluster, namespace: str, pod: str) -> Told:
    """Exit code and data of the explanation of a pod."""
    code, output = explained(cluster, namespace, "pod", pod, "-o", "json")
    return code, json.loads(output)


def kinds(found: Told) -> list[str]:
    return [one["kind"] for one in found[1]["findings"]]


def test_a_failed_prepare_is_the_reason_until_the_pod_starts_and_no_longer(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    make_template(cluster, namespace)
    driver.process("kubeletplugin").kill()
    cluster.api.create(gpu_pod("train"), namespace)

    def prepare_failed(events: list[dict[str, Any]]) -> bool:
        return any(event["reason"] == "FailedPrepareDynamicResources" for event in events)

    wait_for_list(cluster.api, paths.event(namespace=namespace), prepare_failed)
    failing = told(cluster, namespace, "train")
    assert (failing[0], failing[1]["verdict"], kinds(failing)) == (3, "fails", ["prepare"])

    driver.start_plugin()
    driver.wait_serving()
    wait_running(cluster, namespace, "train", timeout_seconds=150)  # the kubelet tries again after a minute
    assert prepare_failed(cluster.api.list_objects(paths.event(namespace=namespace)))
    running = told(cluster, namespace, "train")
    assert (running[0], running[1]["verdict"], kinds(running)) == (0, "runs", [])


def test_a_pod_that_failed_has_failed_and_quotes_its_status(cluster: Cluster, namespace: str) -> None:
    scene = Scene(namespace, cluster.nodes[0].name)
    pod = scene.pod("ended", schedulingGates=[{"name": "example.com/wait"}])
    cluster.api.create(pod, namespace)
    status = {"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"}
    cluster.api.patch(f"{paths.pod('ended', namespace)}/status", {"status": status})

    found = told(cluster, namespace, "ended")

    assert (found[0], found[1]["verdict"], found[1]["summary"]) == (3, "failed", "it has failed")
    assert found[1]["findings"][0]["message"] == "Evicted: the node was low on memory"


@pytest.fixture
def plugin_resource(cluster: Cluster, namespace: str) -> Iterator[str]:
    """A resource of which the node has two itself, as if a device plugin had registered them."""
    resource = f"{namespace}.example.com/gpu"
    path = paths.node(cluster.nodes[0].name)
    amounts = {"capacity": {resource: "2"}, "allocatable": {resource: "2"}}
    cluster.api.patch(f"{path}/status", {"status": amounts})

    def there(node: dict[str, Any]) -> bool:
        return bool(node["status"].get("allocatable", {}).get(resource) == "2")

    wait_for(cluster.api, path, there)
    yield resource
    gone = {"capacity": {resource: None}, "allocatable": {resource: None}}
    cluster.api.patch(f"{path}/status", {"status": gone})


def test_a_node_whose_device_plugin_has_the_resource_is_asked_for_that(
    cluster: Cluster, namespace: str, plugin_resource: str
) -> None:
    """A class stands for the resource as well, and nothing is published for it: no driver has to run."""
    scene = Scene(namespace, cluster.nodes[0].name)
    gates = [{"name": "example.com/wait"}]
    scene.device_class(extendedResourceName=plugin_resource)
    scene.pod("holder", limits={plugin_resource: "1"})
    scene.pod("fitting", limits={plugin_resource: "1"}, schedulingGates=gates)
    scene.pod("waiting", limits={plugin_resource: "2"}, schedulingGates=gates)
    for made in scene.objects:
        cluster.api.create(made, namespace)
    try:
        holder = paths.pod("holder", namespace)
        wait_for(cluster.api, holder, lambda pod: bool(pod["spec"].get("nodeName")))

        assert kinds(told(cluster, namespace, "fitting")) == ["gate"]
        code, found = eventually(
            "both reasons are given",
            lambda: told(cluster, namespace, "waiting"),
            lambda one: kinds(one) == ["gate", "device-plugin"],
        )
    finally:
        cluster.api.delete(paths.device_class(namespace))
    assert (code, found["verdict"]) == (3, "waits")
    messages = [one["message"] for one in found["findings"] if one["kind"] == "device-plugin"]
    node = cluster.nodes[0].name
    assert messages == [
        f"{node}: its device plugin has 2 {plugin_resource}, 1 of them for other pods; the pod needs 2"
    ]
