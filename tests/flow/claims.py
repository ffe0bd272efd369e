"""Pods and claims for whole GPUs, and what the tests look at in containers and on the node."""

import json
from functools import partial
from typing import Any

from gpuctl.demo.driver_node import MPS
from tests.clusters import Cluster, DriverNode, Object, paths, wait_for, wait_for_list
from tests.eventually import eventually

CLASS = "gpu.nvidia.com"


def request(name: str = "gpu", device_class: str = CLASS, **exactly: Any) -> Object:
    """One request of a claim."""
    return {"name": name, "exactly": {"deviceClassName": device_class, **exactly}}


def make_claim(cluster: Cluster, namespace: str, name: str, *requests: Object) -> Object:
    """A claim that pods share by name."""
    return cluster.api.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": list(requests or (request(),))}},
        },
        namespace,
    )


def make_template(cluster: Cluster, namespace: str, *requests: Object) -> None:
    """The template ``gpu``, from which each pod gets a claim of its own."""
    cluster.api.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "gpu"},
            "spec": {"spec": {"devices": {"requests": list(requests or (request(),))}}},
        },
        namespace,
    )


def gpu_pod(name: str, claim: str = "", containers: tuple[str, ...] = ("main",)) -> Object:
    """A pod with the claim of that name, or with one of its own from the template ``gpu``."""
    source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": "gpu"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "resourceClaims": [{"name": "gpu", **source}],
            "containers": [
                {
                    "name": container,
                    "image": "localhost/busybox:1",
                    "imagePullPolicy": "Never",
                    "resources": {"claims": [{"name": "gpu"}]},
                }
                for container in containers
            ],
        },
    }


def start(cluster: Cluster, namespace: str, pod: Object, timeout_seconds: float = 60) -> None:
    """Create a pod and wait until it runs."""
    cluster.api.create(pod, namespace)
    wait_running(cluster, namespace, pod["metadata"]["name"], timeout_seconds)


SCHEDULER_LOOKS_AGAIN_SECONDS = 330.0
"""The scheduler comes back to a pod after five minutes at the latest (podMaxInUnschedulablePodsDuration).

It tries a waiting pod at once when an event may help it, and sometimes misses that one did.
"""


def wait_running(
    cluster: Cluster, namespace: str, pod: str, timeout_seconds: float = SCHEDULER_LOOKS_AGAIN_SECONDS
) -> None:
    """Wait until a pod runs with all its containers."""

    def runs(stored: Object) -> bool:
        return bool(stored["status"].get("phase") == "Running")

    wait_for(cluster.api, paths.pod(pod, namespace), runs, timeout_seconds)


def wait_unschedulable(cluster: Cluster, namespace: str, pod: str) -> None:
    """Wait until the scheduler has found no place for a pod."""

    def refused(stored: Object) -> bool:
        conditions = stored["status"].get("conditions") or []
        return any(
            one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions
        )

    wait_for(cluster.api, paths.pod(pod, namespace), refused, 60)


def is_refusal(message: str, reason: str) -> bool:
    """Whether a message says that the one node was refused for this reason.

    Before its ending, which is about preemption, 1.36 says that there is nothing to deallocate.
    """
    ending = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    return message.startswith(f"0/1 nodes are available: {reason}. ") and message.endswith(ending)


def gpu_nodes(cluster: Cluster, namespace: str, pod: str, container: str = "main") -> list[str]:
    """The nodes of GPUs, /dev/nvidia<number>, that a container sees."""
    nodes = cluster.container(pod, namespace, container).device_nodes
    return [node for node in nodes if node.removeprefix("/dev/nvidia").isdigit()]


def claim_of(cluster: Cluster, namespace: str, pod: str) -> Object:
    """The claim that was made for a pod."""
    status = cluster.api.get(paths.pod(pod, namespace))["status"]["resourceClaimStatuses"]
    return cluster.api.get(paths.resource_claim(status[0]["resourceClaimName"], namespace))


def allocated(claim: Object) -> list[str]:
    """The devices that a claim was given."""
    results = claim["status"]["allocation"]["devices"]["results"]
    return [result["device"] for result in results]


def wait_published(driver: DriverNode, timeout_seconds: float = 30) -> list[Object]:
    """Wait until the node's slices are there and complete; returns them."""

    def complete(slices: list[Object]) -> bool:
        counts = [int(stored["spec"]["pool"]["resourceSliceCount"]) for stored in slices]
        return bool(counts) and counts[0] == len(slices)

    selector = f"spec.nodeName={driver.node.name},spec.driver={CLASS}"
    return wait_for_list(
        driver.cluster.api, paths.resource_slice(), complete, timeout_seconds, fieldSelector=selector
    )


def journal_states(driver: DriverNode) -> dict[str, str]:
    """The state of each claim in the plugin's journal, by UID."""
    entries = [json.loads(path.read_text())["entry"] for path in driver.journal_dir.glob("*.json")]
    return {entry["uid"]: entry["state"] for entry in entries}


def spec_files(driver: DriverNode) -> set[str]:
    """The claims that have a CDI spec on the node, by UID."""
    prefix = f"k8s.{CLASS}-claim_"
    return {path.stem.removeprefix(prefix) for path in driver.node.cdi_dir.glob(f"{prefix}*.json")}


def wait_released(driver: DriverNode, uid: str) -> None:
    """Wait until nothing is left of a claim on the node: its pod may be gone from the API before.

    A pod without a grace period is; the kubelet then ends the containers and unprepares.
    """

    states = partial(journal_states, driver)
    eventually(
        f"claim {uid} is released",
        states,
        lambda known: known.get(uid) == "released" and uid not in spec_files(driver),
    )


def restored(driver: DriverNode) -> None:
    """Undo what a test did to the driver: all processes run and all GPUs are healthy and published."""
    driver.machine.heal()
    driver.machine.heal_mps()
    for name, start_again in (
        (MPS, driver.start_mps),
        ("kubeletplugin", driver.start_plugin),
        ("controller", driver.start_controller),
    ):
        if driver.process(name).returncode is not None:
            start_again()
    driver.wait_serving()
    wait_published(driver)
