"""What is told of devices: their health, faults that only the controller heard, and pods of others."""

import pytest

from tests.gpus import Health
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.shown_node import ONE
from tests.plugin import DeviceHealth, HealthBoard, HealthTracker, PodResourcesUnavailable, PublishedDevices

KEY = ("pool", "gpu-0")
WELL = Health("Healthy")
GONE = Health("Unhealthy", "gone", "GpuLost")
BUSY = Health("Unknown", "busy")


@pytest.mark.parametrize(
    ("looks", "told", "changes"),
    [
        ((WELL, GONE, GONE, WELL), (WELL, GONE, GONE, WELL), 3),
        # One look that cannot tell changes nothing, and two do.
        ((WELL, BUSY, BUSY, WELL, BUSY, GONE, BUSY), (WELL, WELL, BUSY, WELL, WELL, GONE, GONE), 4),
        ((BUSY,), (BUSY,), 1),
    ],
)
def test_a_change_is_told_at_once_unless_one_look_could_not_tell(
    looks: tuple[Health, ...], told: tuple[Health, ...], changes: int
) -> None:
    heard: list[str] = []
    board, tracked = HealthBoard(), HealthTracker(lambda: heard.append("changed"))
    board.on_update(tracked.update)
    assert tracked.known() is None
    for checked, (look, expected) in enumerate(zip(looks, told, strict=True)):
        board.update((DeviceHealth(*KEY, look, checked),))
        assert tracked.known() == {KEY: expected}
    assert len(heard) == changes


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
    hit, spared = node.part(0), node.part(1)
    node.prepared_devices("hit", hit)
    node.prepared_devices("spared", spared)
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


def blocked(node: FakeNode) -> list[tuple[str, str, int | None]]:
    node.health.run_once()
    return [
        (str(one.pci), one.reason, None if one.span is None else one.span.start)
        for one in node.watch.state().blocked
        if one.reason == "device-plugin"
    ]


def test_what_a_pod_of_a_device_plugin_has_is_blocked_until_it_has_ended(node: FakeNode) -> None:
    second = node.gpus[1]
    node.cut_by_hand(ONE, 6, 1)
    mig = node.discovery.snapshot().gpus[0].mig
    assert mig is not None
    node.given_by_device_plugins = {mig.partitions[0].uuid, "GPU-elsewhere"}
    assert blocked(node) == [(str(node.gpus[0]), "device-plugin", 6)]
    node.given_by_device_plugins = {f"{node.machine.uuid(second)}::{replica}" for replica in range(3)}
    for _ in range(2):
        assert blocked(node) == [(str(second), "device-plugin", None)]
        node.given_by_device_plugins = PodResourcesUnavailable("no answer", "see that the kubelet runs")
    node.given_by_device_plugins = set()
    assert blocked(node) == []
