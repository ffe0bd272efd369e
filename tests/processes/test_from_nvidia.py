"""On a node where NVIDIA's driver runs this one waits, takes over, and publishes what is held tainted."""

from collections.abc import Iterator
from typing import Any

import pytest

from proto import dra_v1_pb2 as v1
from tests.eventually import eventually
from tests.gpus import TAINT_BLOCKED
from tests.kubeletplugin.migration.nvidia_state import slice_of
from tests.nvidia_driver import NvidiaDriver, slice_devices
from tests.processes.node import GROUP, NODE, Node
from tests.processes.process import DriverProcess
from tests.processes.test_probes import OK, asked, comes_to, port_of, well

SLICES = f"/apis/{GROUP}/v1/resourceslices"


@pytest.fixture
def nvidia(node: Node) -> Iterator[NvidiaDriver]:
    """NVIDIA's driver, running, with its slice published."""
    uuids = {
        f"gpu-{number}": node.machine.uuid(pci) for number, pci in enumerate(node.machine.state.listed())
    }
    node.server.create(SLICES, slice_of(NODE, slice_devices(uuids)))

    def get_claim(namespace: str, name: str) -> dict[str, Any]:
        (found,) = [
            one
            for one in node.server.objects("resourceclaims", GROUP)
            if (one["metadata"]["namespace"], one["metadata"]["name"]) == (namespace, name)
        ]
        return found

    with NvidiaDriver(NODE, node.plugins, node.registry, node.cdi, uuids, get_claim) as running:
        yield running


def prepared(node: Node, nvidia: NvidiaDriver, name: str, device: str) -> v1.Claim:
    claim = node.claim(name, device, pool=NODE)
    nvidia.prepare("team", name, claim.uid)
    return claim


def waiting(node: Node) -> DriverProcess:
    return DriverProcess("kubeletplugin", *node.plugin_flags())


def tainted(node: Node) -> dict[str, str]:
    return {
        device["name"]: taint["value"]
        for device in node.devices()
        for taint in device.get("taints", ())
        if taint["key"] == TAINT_BLOCKED
    }


def test_a_claim_is_taken_over_and_its_gpu_is_published_tainted_until_it_ends(
    node: Node, nvidia: NvidiaDriver
) -> None:
    claim = prepared(node, nvidia, "train", "gpu-0")
    with waiting(node) as plugin, node.controller() as controller:
        assert "answers at" in plugin.wait_for("waiting for NVIDIA's driver")["reason"]
        node.wait_event("OtherDriver")
        controller.wait_for("cannot follow the kubelet plugin")
        assert [item["spec"]["pool"]["name"] for item in node.slices()] == [NODE]

        nvidia.end()
        node.register(plugin)
        eventually("one device has a taint", lambda: tainted(node), lambda taints: len(taints) == 1)
        (item,) = node.slices()
        assert item["spec"]["pool"]["name"] == f"{NODE}/gpu.nvidia.com"
        controller.wait_for("slices published", deleted=1, created=1)
        assert controller.logged("slices published")[0]["updated"] == 0
        assert tainted(node) == {node.gpus[0]: "held-by-claim"}
        (answer,) = node.prepare(claim)
        assert (answer.error, answer.cdi_devices) == ("", (f"k8s.gpu.nvidia.com/claim={claim.uid}-gpu-0",))
        assert not nvidia.checkpoint.exists()

        assert node.unprepare(claim) == [""]
        eventually("nothing has a taint", lambda: tainted(node), lambda taints: taints == {})
        assert list(node.cdi.iterdir()) == []


def test_nvidias_driver_that_comes_later_is_noticed_and_nothing_is_published_beside_it(
    node: Node, nvidia: NvidiaDriver
) -> None:
    nvidia.end()
    launcher = ("0.2", "kubeletplugin", *node.plugin_flags(pod_uid="u-1"))
    with DriverProcess("gpuctl.demo.brisk", *launcher) as plugin, node.controller() as controller:
        node.register(plugin, "u-1")
        controller.wait_for("slices published")
        nvidia.start()
        plugin.wait_for("two drivers have the same name")
        controller.wait_for("kubelet plugin does not serve")
        nvidia.end()
        plugin.wait_for("no other driver with this name answers on the node any more")
        controller.wait_logged(2, "kubelet plugin serves")


def test_a_kubelet_that_probes_a_waiting_plugin_lets_it_wait(node: Node, nvidia: NvidiaDriver) -> None:
    with DriverProcess("kubeletplugin", *node.plugin_flags(health_addr="127.0.0.1:0")) as plugin:
        port = port_of(plugin)
        plugin.wait_for("waiting for NVIDIA's driver")

        assert [asked(port, f"/{path}")[0] for path in ("startupz", "livez", "readyz")] == [200, 200, 503]
        assert str(nvidia.registration_socket) in asked(port, "/readyz")[1]
        nvidia.end()
        node.register(plugin)
        # When it has waited enough, it begins anew, and so does its server.
        port = plugin.wait_logged(2, "serving probes")[-1]["port"]
        assert comes_to(port, "/readyz", well) == OK
