"""Replaces the driver of a node while it serves, when ``scenario-upgrade`` asks for it over a socket.

The processes of the driver are the runner's, so the program cannot do it by itself.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from socketserver import StreamRequestHandler, UnixStreamServer

from driver.process.sockets import service_socket_name
from envtest.client.errors import ClusterError
from envtest.cluster import Cluster, Process
from gpuctl.demo.driver_node import DriverNode
from tools.scenarios.commands.upgrade import REPLACED, upgrade_socket
from tools.scenarios.places.projection import config_file


class NodeUpgrade:
    """The driver of one node, as often as it is replaced."""

    def __init__(self, driver: DriverNode) -> None:
        self._driver = driver
        self._surged: Process | None = None

    def replace(self) -> None:
        """Start a second plugin beside the first, end the first once the second serves, then the controller.

        It is what a DaemonSet with ``maxSurge: 1`` does on a node. Raises ClusterError.
        """
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


def begin(_cluster: Cluster, drivers: Sequence[DriverNode], cleanup: ExitStack) -> None:
    """Listen on each node; the stack ends that."""
    for driver in drivers:
        server = _server(driver)
        listening = threading.Thread(target=server.serve_forever, name="upgrade", daemon=True)
        listening.start()
        cleanup.callback(listening.join)
        cleanup.callback(server.server_close)
        cleanup.callback(server.shutdown)


def _server(driver: DriverNode) -> UnixStreamServer:
    upgrade = NodeUpgrade(driver)

    class Asked(StreamRequestHandler):
        def handle(self) -> None:
            try:
                upgrade.replace()
            except ClusterError as error:
                self.wfile.write(f"{error}\n".encode())
            else:
                self.wfile.write(f"{REPLACED}\n".encode())

    return UnixStreamServer(str(upgrade_socket(driver.folder)), Asked)
