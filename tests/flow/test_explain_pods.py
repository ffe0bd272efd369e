"""``gpuctl explain`` of pods that have a node, have ended, or ask a device plugin, on either cluster."""

import json

from tests.clusters import Cluster, DriverNode, Object, paths, wait_for_list
from tests.flow.claims import gpu_pod, make_template, wait_running
from tests.flow.test_explain import explained

Told = tuple[int, Object]


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

    def prepare_failed(events: list[Object]) -> bool:
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
