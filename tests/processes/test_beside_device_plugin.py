"""A controller beside a device plugin follows its Node, and taints what it publishes from the first on."""

from tests.eventually import eventually
from tests.gpus import TAINT_DEVICE_PLUGIN
from tests.processes.node import NODE, Node


def offer(node: Node, resource: str, amount: str) -> None:
    """What the kubelet writes when a device plugin offers something."""
    (stored,) = node.server.objects("nodes")
    node.server.replace(
        f"/api/v1/nodes/{NODE}/status", {**stored, "status": {"capacity": {resource: amount}}}
    )


def tainted(node: Node) -> list[str]:
    return [
        taint["value"]
        for device in node.devices()
        for taint in device.get("taints", ())
        if taint["key"] == TAINT_DEVICE_PLUGIN
    ]


def test_slices_are_tainted_from_the_first_on_until_the_device_plugin_is_gone(node: Node) -> None:
    offer(node, "nvidia.com/gpu", "8")
    with node.plugin(), node.controller() as controller:
        controller.wait_for("slices published", created=1, updated=0)
        assert tainted(node) == ["gpu"] * 8
        offer(node, "nvidia.com/gpu", "0")
        eventually("no taints", lambda: tainted(node), lambda taints: taints == [])
        offer(node, "nvidia.com/mig-1g.10gb", "7")
        eventually("taints", lambda: tainted(node), lambda taints: taints == ["mig-1g.10gb"] * 8)
        node.wait_event("DevicePluginBeside", times=2)
