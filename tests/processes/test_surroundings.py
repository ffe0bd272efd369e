"""Nodes and clusters of another make: no GPU, IPv6 alone, a proxy, a clock that is off."""

import threading
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests import needs
from tests.clusters import BRISK, EmbeddedApiServer
from tests.eventually import WAIT_SECONDS, eventually
from tests.kubeletplugin.fake_kubelet import short_folder
from tests.processes.node import Node
from tests.processes.process import DriverProcess, FreshProcess
from tests.processes.test_probes import OK, comes_to, port_of, well

MOST_MIB = 96
"""What a process may take on a node where it has nothing to do: the code, and a thread for each loop."""

_SIX_LOOKS_SECONDS = 2.0

DEAD_PROXY = "http://192.0.2.1:3128"
PROXIES = dict.fromkeys(
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "grpc_proxy"], DEAD_PROXY
)


def resident_mib(process: DriverProcess) -> float:
    """The memory of the process."""
    (line,) = (
        line
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
        if line.startswith("VmRSS:")
    )
    return int(line.split()[1]) / 1024


@pytest.mark.parametrize("nvml", ["no driver", "no GPUs"])
def test_a_node_without_gpus_is_quiet_and_small(node: Node, nvml: str) -> None:
    bare = node.folder / "bare"
    bare.mkdir()
    for pci in node.machine.state.listed():
        node.machine.remove(pci)
    flags = {
        "nvml": "real" if nvml == "no driver" else node.nvml,
        "driver_root": str(bare),
        "sysfs_root": str(bare),
        "health_addr": "127.0.0.1:0",
    }
    with (
        FreshProcess(*BRISK, "kubeletplugin", *node.plugin_flags(**flags)) as plugin,
        FreshProcess(*BRISK, "controller", *node.controller_flags(**flags)) as controller,
    ):
        node.register(plugin)
        for process in (plugin, controller):
            assert comes_to(port_of(process), "/readyz", well) == OK
        threading.Event().wait(_SIX_LOOKS_SECONDS)  # nothing is to happen, and nothing tells of that
        for process in (plugin, controller):
            assert [line for line in process.lines() if line["level"] == "error"] == []
            warnings = [line["event"] for line in process.lines() if line["level"] == "warning"]
            assert len(warnings) == len(set(warnings)) <= 1
            assert resident_mib(process) < MOST_MIB
        assert node.devices() == []
        assert node.server.objects("events") == []
        assert (plugin.stop(), controller.stop()) == (0, 0)


def is_answered(port: int, path: str) -> bool:
    connection = HTTPConnection("::1", port, timeout=WAIT_SECONDS)
    connection.request("GET", path)
    status = connection.getresponse().status
    connection.close()
    return status == 200


@needs.IPV6
def test_with_ipv6_alone_the_api_server_is_reached_and_probes_and_metrics_are_answered() -> None:
    server = EmbeddedApiServer()
    server.host = "::1"
    with short_folder() as folder, server:
        node = Node(folder, server)
        flags = {"health_addr": "[::1]:0", "metrics_addr": "[::1]:0"}
        with node.plugin() as plugin, node.controller(**flags) as controller:
            node.publishes(8, controller)
            assert node.prepare(node.claim("train", node.gpus[0]))[0].error == ""
            # Slices are there a moment before their publisher knows that they were taken.
            metrics = controller.wait_for("serving metrics")["port"]
            for port, path in ((port_of(controller), "/readyz"), (metrics, "/metrics")):
                eventually(f"{path} is answered", partial(is_answered, port, path))
            assert (plugin.stop(), controller.stop()) == (0, 0)


def test_a_proxy_in_the_environment_stands_between_no_two_processes_of_a_node(node: Node) -> None:
    claim = node.claim("train", node.gpus[0])
    # The API server of the test is on this machine.
    proxies = {**PROXIES, "NO_PROXY": "127.0.0.1"}
    with (
        FreshProcess("kubeletplugin", *node.plugin_flags(), **proxies) as plugin,
        FreshProcess("controller", *node.controller_flags(), **proxies) as controller,
    ):
        node.register(plugin)
        node.publishes(8, controller)
        assert node.prepare(claim)[0].error == ""
        assert (plugin.stop(), controller.stop()) == (0, 0)
