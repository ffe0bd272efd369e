"""Nodes of one cluster are machines of their own to what runs on them: the same paths, other files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envtest.client.fresh_namespace import fresh_namespace
from envtest.real.cluster import RealCluster
from tests.cluster.objects import run_pod, sleeper

PATHS = ("/run/nvidia", "/var/lib/kubelet/plugins", "/var/run/cdi")


def test_pods_of_two_nodes_find_other_files_at_the_same_path_and_reach_the_api_server(
    start_cluster: Callable[[int], RealCluster],
) -> None:
    cluster = start_cluster(2)
    for node in cluster.nodes:
        for path in PATHS:
            folder = node.host_path(path)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "name").write_text(node.name)
    host, port = cluster.pods_see_server_at
    with fresh_namespace(cluster.api) as namespace:
        for node in cluster.nodes:
            run_pod(cluster, namespace, looking_at(node.name))
            for path in PATHS:
                assert cluster.exec(node.name, ["cat", f"/host{path}/name"], namespace) == node.name
            said = cluster.exec(node.name, ["sh", "-c", f"echo | nc -w 5 {host} {port}"], namespace)
            assert "HTTP" in said


def looking_at(node: str) -> dict[str, Any]:
    """A pod that has the paths of its node."""
    pod = sleeper(node, nodeName=node)
    spec = pod["spec"]
    names = {path: path.strip("/").replace("/", "-") for path in PATHS}
    spec["volumes"] = [{"name": name, "hostPath": {"path": path}} for path, name in names.items()]
    mounts = [{"name": name, "mountPath": f"/host{path}"} for path, name in names.items()]
    spec["containers"][0]["volumeMounts"] = mounts
    return pod
