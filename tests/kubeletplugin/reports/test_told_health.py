"""The kubelet's health stream tells of faults that only the controller heard, on devices that they hit."""

from __future__ import annotations

from kubeletplugin.reports.published import PublishedDevices
from tests.kubeletplugin.fake_node import FakeNode


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
    assert node.told_health()[hit].health.word == "Healthy"

    published.take("ADDED", fault(hit))

    found = node.told_health()
    assert (found[hit].health.word, found[spared].health.word) == ("Unhealthy", "Healthy")
    assert found[hit].health.reason == "Xid"
    assert "XID 95" in found[hit].health.message
    published.take("MODIFIED", {"spec": {"devices": [{"name": hit}]}})
    assert node.told_health()[hit].health.word == "Healthy"
