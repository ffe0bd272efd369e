"""The kubelet's health stream tells of faults that only the controller heard, on devices that they hit."""

from __future__ import annotations

from kubeletplugin.reports.published import PublishedDevices
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.reports.test_node_watch import checked


def fault(*devices: str) -> dict[str, object]:
    """A slice in which these devices are hit by a fault that needs a reset."""
    taints = [
        {"key": "gpu.nvidia.com/xid", "value": "95", "effect": "NoSchedule"},
        {"key": "gpu.nvidia.com/needs-reset", "value": "xid-95", "effect": "NoSchedule"},
    ]
    return {
        "metadata": {"name": "slice"},
        "spec": {"devices": [{"name": name, "taints": taints} for name in devices]},
    }


def test_a_fault_of_a_partition_is_of_its_claim_alone(node: FakeNode) -> None:
    hit, spared = node.partition(0, "1g.10gb", 0), node.partition(0, "1g.10gb", 1)
    node.prepare(node.claim_devices("hit", hit))
    node.prepare(node.claim_devices("spared", spared))
    published = PublishedDevices()
    node.health.add_reported(published.health_of)
    assert checked(node)[hit].word == "Healthy"

    published.take("ADDED", fault(hit))

    found = checked(node)
    assert (found[hit].word, found[hit].reason, found[spared].word) == ("Unhealthy", "Xid", "Healthy")
    assert "XID 95" in found[hit].message
    published.take("MODIFIED", {"spec": {"devices": [{"name": hit}]}})
    assert checked(node)[hit].word == "Healthy"
