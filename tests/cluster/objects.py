"""Kubernetes objects that the tests on a real cluster create."""

from __future__ import annotations

from typing import Any

from envtest.client import paths
from envtest.client.waiting import wait_for
from envtest.real.cluster import RealCluster


def sleeper(name: str = "sleeper", **spec: Any) -> dict[str, Any]:
    """A pod that sleeps and ends at once when it is deleted; ``spec`` adds fields to its spec."""
    container = {"name": "main", "image": "localhost/busybox:1", "imagePullPolicy": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


def run_pod(cluster: RealCluster, namespace: str, pod: dict[str, Any]) -> dict[str, Any]:
    """Create a pod, wait until it runs, and return it."""
    cluster.api.create(pod, namespace)
    path = paths.pod(pod["metadata"]["name"], namespace)
    return wait_for(cluster.api, path, lambda obj: obj["status"].get("phase") == "Running")


def slice_of(node: str | None) -> dict[str, Any]:
    """A ResourceSlice with one GPU, of a node or, for None, of all nodes."""
    where = {"allNodes": True} if node is None else {"nodeName": node}
    owner = node or "all-nodes"
    pool = {"name": f"{owner}/gpu.nvidia.com", "generation": 1, "resourceSliceCount": 1}
    device = {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{owner}-gpu"},
        "spec": {"driver": "gpu.nvidia.com", "pool": pool, "devices": [device], **where},
    }


def event_of(node: str, component: str = "gpu-dra-kubeletplugin") -> dict[str, Any]:
    """An event about a claim, as a component on a node reports it."""
    about = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "name": "c", "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"told-by-{component}-{node}"},
        "involvedObject": about,
        "reason": "PrepareFailed",
        "message": "m",
        "source": {"component": component, "host": node},
        "reportingComponent": component,
        "reportingInstance": node,
    }
