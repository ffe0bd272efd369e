"""What a scenario can ask for in ``needs``, in addition to the driver, its DeviceClasses and MPS.

``metrics``: the driver's processes run outside of the cluster here, so nothing can find them by their pods.
For each node this makes a pod like the plugin's: in the driver's namespace, with the label, program name,
flag and port of the chart, in the node's network. A request to that pod's port reaches the plugin.

``image``: the driver's image of this checkout on all nodes, by the name that examples have for it. The
embedded cluster has no images.

``nic``: another DRA driver, for network cards, on the first node.

``upgrades``: replacing the driver of a node while it serves. The program ``scenario-upgrade`` asks for that
over a socket, since the driver's processes are children of the runner.
"""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from socketserver import StreamRequestHandler, UnixStreamServer

from driver.process.sockets import service_socket_name
from envtest.client import paths
from envtest.client.api import Object
from envtest.client.errors import ClusterError
from envtest.client.waiting import wait_for
from envtest.cluster import DRIVER_NAMESPACE, Cluster, Process
from envtest.real.cluster import RealCluster
from gpuctl.demo.driver_node import DriverNode
from tools.scenarios.places.network_cards import begin_cards
from tools.scenarios.places.projection import config_file
from tools.scenarios.programs import REPLACED, upgrade_socket
from tools.testbed.driver_image import IMAGE, driver_image

DRIVERS_IMAGE = "localhost/gpu-dra:0.1.0"
"""The name of the driver's image in examples and in the manifests."""

_PLUGIN = "gpu-dra-kubeletplugin"
# The label of the plugin's pods in the chart and the manifests.
_LABEL = "app.kubernetes.io/name"
_BUSYBOX = "busybox:1.37"
_ACCOUNT = f"/api/v1/namespaces/{DRIVER_NAMESPACE}/serviceaccounts/default"
_SCRIPT = "#!/bin/sh\nexec sleep infinity\n"


def _metrics_flags(driver: DriverNode) -> tuple[str, ...]:
    """The flag for a node's plugin to serve its metrics, at a free port."""
    with socket.create_server(("0.0.0.0", 0)) as probe:  # noqa: S104 - nodes are reached by their own address
        port = int(probe.getsockname()[1])
    _port_file(driver).write_text(str(port))
    return ("--metrics-addr", f"0.0.0.0:{port}")


def _begin_metrics(cluster: Cluster, drivers: Sequence[DriverNode], _cleanup: ExitStack) -> None:
    """Make the pods and wait until they run; they end with the cluster."""
    wait_for(cluster.api, _ACCOUNT, bool)
    for driver in drivers:
        program = driver.folder / "pod" / _PLUGIN
        program.parent.mkdir()
        program.write_text(_SCRIPT)
        program.chmod(0o755)
        pod = _pod(driver.node.name, program, int(_port_file(driver).read_text()))
        cluster.api.create(pod, DRIVER_NAMESPACE)
    for driver in drivers:
        path = paths.pod(_pod_name(driver.node.name), DRIVER_NAMESPACE)
        wait_for(cluster.api, path, lambda pod: pod["status"].get("phase") == "Running")


def _pod_name(node: str) -> str:
    """The name of the pod."""
    # Not the name of the plugin's own pod, to which its token is bound on a real cluster.
    return f"{_PLUGIN}-serving-{node}"


def _port_file(driver: DriverNode) -> Path:
    return driver.folder / "metrics-port"


def _pod(node: str, program: Path, port: int) -> Object:
    """The pod in place of a node's plugin; its program is a script that waits."""
    container = {
        "name": "kubeletplugin",
        "image": _BUSYBOX,
        "command": [f"/opt/gpu-dra/{_PLUGIN}"],
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
        "metadata": {"name": _pod_name(node), "namespace": DRIVER_NAMESPACE, "labels": {_LABEL: _PLUGIN}},
        "spec": spec,
    }


def _load_image(cluster: Cluster) -> None:
    """Load the image into all nodes; it is built first if it is not in the cache."""
    if isinstance(cluster, RealCluster):
        cluster.import_image(driver_image())
        cluster.tag_image(IMAGE, DRIVERS_IMAGE)


class _NodeUpgrade:
    """Replaces the driver of one node, any number of times."""

    def __init__(self, driver: DriverNode) -> None:
        self._driver = driver
        self._surged: Process | None = None

    def replace(self) -> None:
        """Start a second plugin, stop the first once the second serves, then replace the controller.

        Raises ClusterError.
        """
        # As a DaemonSet with maxSurge: 1 does on a node.
        driver = self._driver
        if self._surged is None:
            before = driver.process("kubeletplugin")
            pod_uid = str(uuid.uuid4())
            self._surged = driver.start_second_plugin(pod_uid)
            driver.wait_serving(driver.data_dir / service_socket_name(pod_uid))
        else:
            before, self._surged = self._surged, None
            driver.start_plugin()
            driver.wait_serving()
        before.stop()
        driver.process("controller").stop()
        driver.start_controller("--config", str(config_file(driver)))


def _begin_upgrades(_cluster: Cluster, drivers: Sequence[DriverNode], cleanup: ExitStack) -> None:
    """Listen for each node until the stack ends."""
    for driver in drivers:
        server = _upgrade_server(driver)
        listening = threading.Thread(target=server.serve_forever, name="upgrade", daemon=True)
        listening.start()
        # The stack runs these backwards: stop the loop, close the socket, wait for the thread.
        cleanup.callback(listening.join)
        cleanup.callback(server.server_close)
        cleanup.callback(server.shutdown)


def _upgrade_server(driver: DriverNode) -> UnixStreamServer:
    upgrade = _NodeUpgrade(driver)

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            try:
                upgrade.replace()
            except ClusterError as error:
                self.wfile.write(f"{error}\n".encode())
            else:
                self.wfile.write(f"{REPLACED}\n".encode())

    return UnixStreamServer(str(upgrade_socket(driver.folder)), Handler)


@dataclass(frozen=True, slots=True)
class Need:
    """Something that a cluster has in addition.

    ``load`` is called before anything of the driver is there. ``plugin_flags`` are additional flags of a
    node's plugin. ``begin`` is called once all nodes have published; it registers in the stack how it ends.
    """

    load: Callable[[Cluster], None] = lambda _cluster: None
    plugin_flags: Callable[[DriverNode], tuple[str, ...]] = lambda _driver: ()
    begin: Callable[[Cluster, Sequence[DriverNode], ExitStack], None] = lambda *_: None


NEEDS: Mapping[str, Need] = {
    "image": Need(load=_load_image),
    "metrics": Need(plugin_flags=_metrics_flags, begin=_begin_metrics),
    "nic": Need(begin=begin_cards),
    "upgrades": Need(begin=_begin_upgrades),
}
