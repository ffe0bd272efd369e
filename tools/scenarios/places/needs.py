"""What a scenario can ask for in ``needs``, in addition to the driver, its DeviceClasses and MPS.

``metrics``: the driver's processes run outside of the cluster here, so nothing can find them by their pods.
For each node this makes a pod like the plugin's.

``image``: the driver's image of this checkout on all nodes, by the name that examples have for it. The
embedded cluster has no images.

``nic``: another DRA driver, for network cards, on the first node.

``upgrades``: replacing the driver of a node while it serves. The program ``scenario-upgrade`` asks for that
over a socket, since the driver's processes are children of the runner.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from socketserver import StreamRequestHandler, UnixStreamServer

from driver.process.sockets import service_socket_name
from envtest.client.errors import ClusterError
from envtest.client.waiting import wait_for
from envtest.cluster import Cluster, Process
from envtest.real.cluster import RealCluster
from gpuctl.demo.driver_node import DriverNode
from gpuctl.demo.metrics_pod import create_metrics_pod, metrics_flags
from tools.scenarios.places.network_cards import begin_cards
from tools.scenarios.places.projection import config_file
from tools.scenarios.programs import REPLACED, upgrade_socket
from tools.testbed.driver_image import IMAGE, driver_image

DRIVERS_IMAGE = "localhost/gpu-dra:0.1.0"
"""The name of the driver's image in examples and in the manifests."""


def _begin_metrics(cluster: Cluster, drivers: Sequence[DriverNode], _cleanup: ExitStack) -> None:
    """Make the pods and wait until they run; they end with the cluster."""
    for path in [create_metrics_pod(cluster, driver.node) for driver in drivers]:
        wait_for(cluster.api, path, lambda pod: pod["status"].get("phase") == "Running")


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
    "metrics": Need(
        plugin_flags=lambda driver: metrics_flags(driver.cluster, driver.node), begin=_begin_metrics
    ),
    "nic": Need(begin=begin_cards),
    "upgrades": Need(begin=_begin_upgrades),
}
