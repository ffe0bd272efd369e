"""Kubernetes objects that the tests on a real cluster create."""

from typing import Any

from tests.clusters import Object, RealCluster, paths, wait_for


def sleeper(name: str = "sleeper", **spec: Any) -> Object:
    """A pod that sleeps and ends at once when it is deleted; ``spec`` adds fields to its spec."""
    container = {"name": "main", "image": "localhost/busybox:1", "imagePullPolicy": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


def run_pod(cluster: RealCluster, namespace: str, pod: Object) -> Object:
    """Create a pod, wait until it runs, and return it."""
    cluster.api.create(pod, namespace)
    path = paths.pod(pod["metadata"]["name"], namespace)
    return wait_for(cluster.api, path, lambda obj: obj["status"].get("phase") == "Running")
