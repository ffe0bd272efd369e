"""A pod in place of a node's plugin that runs outside of the cluster, so that its metrics are found.

It has the namespace, label, program name, flag and port of the chart's pod, in the node's network. A request
to its port reaches the plugin.
"""

from __future__ import annotations

import socket
from typing import Any

from envtest.client import paths
from envtest.client.layout import NodeLayout
from envtest.client.waiting import wait_for
from envtest.cluster import Cluster
from gpuctl.demo.driver_node import DRIVER_NAMESPACE

Object = dict[str, Any]

_PLUGIN = "gpu-dra-kubeletplugin"
_LABEL = "app.kubernetes.io/name"
_BUSYBOX = "busybox:1.37"
_ACCOUNT = f"/api/v1/namespaces/{DRIVER_NAMESPACE}/serviceaccounts/{_PLUGIN}"
_SCRIPT = "#!/bin/sh\nexec sleep infinity\n"


def metrics_flags(cluster: Cluster, node: NodeLayout) -> tuple[str, ...]:
    """The flag for a node's plugin to serve its metrics, at a free port of the node's address."""
    addresses = cluster.api.get(paths.node(node.name))["status"].get("addresses") or ()
    host = next((one["address"] for one in addresses if one["type"] == "InternalIP"), "127.0.0.1")
    with socket.create_server((host, 0)) as probe:
        port = int(probe.getsockname()[1])
    (node.folder / "metrics-port").write_text(str(port))
    return ("--metrics-addr", f"{host}:{port}")


def create_metrics_pod(cluster: Cluster, node: NodeLayout) -> str:
    """Make the pod of a node whose plugin has these flags, and return its path; it ends with the cluster."""
    wait_for(cluster.api, _ACCOUNT, bool)
    program = node.folder / "pod" / _PLUGIN
    program.parent.mkdir()
    program.write_text(_SCRIPT)
    program.chmod(0o755)
    port = int((node.folder / "metrics-port").read_text())
    container = {
        "name": "kubeletplugin",
        "image": _BUSYBOX,
        "command": [f"/opt/gpu-dra/{_PLUGIN}"],
        "args": [f"--metrics-addr=:{port}"],
        "ports": [{"name": "metrics", "containerPort": port}],
        "volumeMounts": [{"name": "program", "mountPath": "/opt/gpu-dra", "readOnly": True}],
    }
    spec = {
        "nodeName": node.name,
        "serviceAccountName": _PLUGIN,
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": "program", "hostPath": {"path": str(program.parent)}}],
    }
    # Not the name of the plugin's own pod, to which its token is bound on a real cluster.
    name = f"{_PLUGIN}-serving-{node.name}"
    metadata = {"name": name, "namespace": DRIVER_NAMESPACE, "labels": {_LABEL: _PLUGIN}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    cluster.api.create(pod, DRIVER_NAMESPACE)
    return paths.pod(name, DRIVER_NAMESPACE)
