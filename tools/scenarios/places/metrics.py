"""The need ``metrics``: plugins that serve their numbers, each with a pod that the API server asks for them.

The driver's processes run beside the cluster here, in no pod. So a pod stands for the plugin of each node, in
the driver's namespace, as the chart has it: with its label, its program's name, its flag and port, and the
network of its node. What the API server reaches through it is the plugin itself.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from envtest.client import paths
from envtest.client.api import Object
from envtest.client.watching import wait_for
from envtest.cluster import DRIVER_NAMESPACE, Cluster
from gpuctl.demo.driver_node import DriverNode

NAME = "gpu-dra-kubeletplugin"
_LABEL = "app.kubernetes.io/name"  # by which the chart and the manifests mark the plugin's pods
_IMAGE = "busybox:1.37"
_ACCOUNT = f"/api/v1/namespaces/{DRIVER_NAMESPACE}/serviceaccounts/default"
_SCRIPT = "#!/bin/sh\nexec sleep infinity\n"


def plugin_flags(driver: DriverNode) -> tuple[str, ...]:
    """The flag by which a node's plugin serves its numbers, at a port that was free."""
    with socket.create_server(("0.0.0.0", 0)) as probe:  # noqa: S104 - nodes are reached by their own address
        port = int(probe.getsockname()[1])
    _port_file(driver).write_text(str(port))
    return ("--metrics-addr", f"0.0.0.0:{port}")


def begin(cluster: Cluster, drivers: Sequence[DriverNode], _cleanup: ExitStack) -> None:
    """Make the pods and wait until they run; they end with the cluster."""
    wait_for(cluster.api, _ACCOUNT, bool)
    for driver in drivers:
        program = driver.folder / "pod" / NAME
        program.parent.mkdir()
        program.write_text(_SCRIPT)
        program.chmod(0o755)
        pod = _pod(driver.node.name, program, int(_port_file(driver).read_text()))
        cluster.api.create(pod, DRIVER_NAMESPACE)
    for driver in drivers:
        path = paths.pod(_pod_name(driver.node.name), DRIVER_NAMESPACE)
        wait_for(cluster.api, path, lambda pod: pod["status"].get("phase") == "Running")


def _pod_name(node: str) -> str:
    """Unlike that of the pod to which a real cluster binds the token of the plugin's service account."""
    return f"{NAME}-serving-{node}"


def _port_file(driver: DriverNode) -> Path:
    return driver.folder / "metrics-port"


def _pod(node: str, program: Path, port: int) -> Object:
    """What stands for the plugin of a node: its program is a script that waits."""
    container = {
        "name": "kubeletplugin",
        "image": _IMAGE,
        "command": [f"/opt/gpu-dra/{NAME}"],
        "args": [f"--metrics-addr=:{port}"],
        "ports": [{"name": "metrics", "containerPort": port}],
        "volumeMounts": [{"name": "program", "mountPath": "/opt/gpu-dra", "readOnly": True}],
    }
    spec = {
        "nodeName": node,
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": "program", "hostPath": {"path": str(program.parent)}}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _pod_name(node), "namespace": DRIVER_NAMESPACE, "labels": {_LABEL: NAME}},
        "spec": spec,
    }
