"""A claim with devices of two drivers: each driver does its own part and leaves the other's alone."""

from tests.clusters import Cluster, DriverNode, Object, paths
from tests.flow.claims import (
    claim_of,
    gpu_nodes,
    gpu_pod,
    request,
    start,
    wait_published,
    wait_released,
    wait_unschedulable,
)
from tools.scenarios.places.network_cards import DRIVER, cards_on

ROOT = "resource.kubernetes.io/pcieRoot"
NUMA = "resource.kubernetes.io/numaNode"
GPU_ROOT, OTHER_ROOT = "pci0000:bd", "pci0000:30"
"""The PCIe root of the node's sixth GPU, which is on NUMA node 1, and one that no GPU has."""

CARDS: dict[str, Object] = {
    "eth0": {ROOT: {"string": OTHER_ROOT}, NUMA: {"int": 0}},
    "eth1": {ROOT: {"string": GPU_ROOT}, NUMA: {"int": 1}},
}


def make_pair(cluster: Cluster, namespace: str, attribute: str) -> None:
    """The template ``gpu``: a GPU and a card that have the same value of an attribute."""
    constraint = {"requests": ["gpu", "nic"], "matchAttribute": attribute}
    devices = {"requests": [request("gpu"), request("nic", DRIVER)], "constraints": [constraint]}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu"},
        "spec": {"spec": {"devices": devices}},
    }
    cluster.api.create(template, namespace)


def given(driver: DriverNode, namespace: str, pod: str) -> tuple[Object, str]:
    """The attributes of the GPU that a pod was given, and the name of its card."""
    results = claim_of(driver.cluster, namespace, pod)["status"]["allocation"]["devices"]["results"]
    devices = {result["request"]: result["device"] for result in results}
    (attributes,) = (
        device["attributes"]
        for stored in wait_published(driver)
        for device in stored["spec"].get("devices") or ()
        if device["name"] == devices["gpu"]
    )
    return attributes, devices["nic"]


def test_a_gpu_and_a_card_are_on_one_pcie_root(driver: DriverNode, namespace: str) -> None:
    cluster = driver.cluster
    with cards_on(driver, CARDS):
        make_pair(cluster, namespace, ROOT)
        start(cluster, namespace, gpu_pod("near"))

        attributes, card = given(driver, namespace, "near")
        assert (attributes[ROOT]["string"], card) == (GPU_ROOT, "eth1")
        gpu = driver.machine.state.gpus[driver.machine.pci(5)]
        assert gpu_nodes(cluster, namespace, "near") == [f"/dev/nvidia{gpu.minor}"]
        cluster.api.create(gpu_pod("far"), namespace)
        wait_unschedulable(cluster, namespace, "far")
        uid = claim_of(cluster, namespace, "near")["metadata"]["uid"]
        for pod in ("far", "near"):
            cluster.api.delete(paths.pod(pod, namespace))
        wait_released(driver, uid)
