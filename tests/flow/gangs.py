"""Gangs of pods that share a claim for an IMEX channel, and the process that publishes the channels."""

import sys

from tests.clusters import (
    DRIVER_NAMESPACE,
    PACKAGE_ROOT,
    Cluster,
    DriverNode,
    Object,
    Process,
    paths,
    wait_for_list,
    wait_gone,
)
from tests.eventually import eventually
from tests.flow.claims import gpu_pod, make_claim, request

CLUSTER = "5c2f8d1e-7a34-4b60-9e15-d30b6c8f4a72"
CLIQUE, OTHER = f"{CLUSTER}.4026", f"{CLUSTER}.4027"
LABEL = "nvidia.com/gpu.clique"
FOLDER = "/dev/nvidia-caps-imex-channels/"
CLASS = PACKAGE_ROOT / "deviceclasses/cliques/nvlink-channel.yaml"


def start_publisher(cluster: Cluster, channels: int) -> Process:
    """Start gpu-dra-cliques; a second start follows the end of the first."""
    kubeconfig = cluster.service_account_kubeconfig(
        DRIVER_NAMESPACE, "gpu-dra-cliques", cluster.nodes[0].name
    )
    flags = ("--kubeconfig", str(kubeconfig), "--channels", str(channels))
    return cluster.processes.start("cliques", (sys.executable, "-m", "controller.cliques", *flags))


def offer_channels(cluster: Cluster, channels: int) -> Process:
    """Have a cluster offer channels, and wait until the nodes have their label."""
    cluster.api.apply(PACKAGE_ROOT / "deploy/rbac.yaml")
    cluster.api.apply(CLASS)
    process = start_publisher(cluster, channels)
    wait_for_list(cluster.api, "/api/v1/nodes", lambda nodes: all(map(clique_of, nodes)), 60)
    return process


def start_plugin(driver: DriverNode) -> None:
    """Start the plugin with both of its drivers."""
    driver.start_plugin("--channels")
    driver.wait_serving()
    eventually("its second driver is registered", lambda: registered(driver))


def registered(driver: DriverNode) -> bool:
    """Whether the kubelet has registered the driver of channels."""
    return '"driver": "channels.gpu.nvidia.com"' in driver.process("kubeletplugin").log


def clique_of(node: Object) -> str:
    return str(node["metadata"].get("labels", {}).get(LABEL, ""))


def gang_pod(name: str, gang: str, clique: str = "") -> Object:
    """A pod of a gang, with its GPUs by a claim of its own; the first one may be sent to a clique."""
    pod = gpu_pod(name)
    spec = pod["spec"]
    spec["resourceClaims"].append({"name": "channel", "resourceClaimName": gang})
    spec["containers"][0]["resources"]["claims"].append({"name": "channel"})
    if clique:
        spec["nodeSelector"] = {LABEL: clique}
    return pod


def begin(cluster: Cluster, namespace: str, gang: str, *pods: str, clique: str = "") -> None:
    """A gang with its claim; its first pod may be sent to a clique."""
    make_claim(cluster, namespace, gang, request("channel", "nvlink-channel"))
    for number, name in enumerate(pods):
        cluster.api.create(gang_pod(name, gang, clique if number == 0 else ""), namespace)


def end(cluster: Cluster, namespace: str, gang: str, *pods: str) -> None:
    """Delete a gang, and wait until it is gone."""
    for name in pods:
        cluster.api.delete(paths.pod(name, namespace))
    for name in pods:
        wait_gone(cluster.api, paths.pod(name, namespace))
    cluster.api.delete(paths.resource_claim(gang, namespace))
    wait_gone(cluster.api, paths.resource_claim(gang, namespace))


def node_of(cluster: Cluster, namespace: str, pod: str) -> str:
    return str(cluster.api.get(paths.pod(pod, namespace))["spec"]["nodeName"])


def channels(cluster: Cluster, namespace: str, pod: str) -> list[str]:
    """The channels that the container of a pod sees."""
    nodes = cluster.container(pod, namespace).device_nodes
    return [node.removeprefix(FOLDER) for node in nodes if node.startswith(FOLDER)]
