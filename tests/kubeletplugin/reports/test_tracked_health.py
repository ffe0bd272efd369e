"""What is told of devices: their health, faults that only the controller heard, and pods of others."""

from __future__ import annotations

from driver.health.verdict import Health
from kubeletplugin.kubelet.podresources import PodResourcesUnavailable
from kubeletplugin.kubelet.wire.health_board import DeviceHealth, HealthBoard
from kubeletplugin.reports.device_status import HealthTracker
from kubeletplugin.reports.published import PublishedDevices
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.shown_node import ONE

KEY = ("pool", "gpu-0")
WELL = Health("Healthy")
GONE = Health("Unhealthy", "gone", "GpuLost")
BUSY = Health("Unknown", "busy")


class Node:
    """One device, what is remembered of it, and how often that changed."""

    def __init__(self) -> None:
        self.changes = 0
        self.memory = HealthTracker(self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def look(self, health: Health, checked: int = 0) -> Health:
        self.memory.update((DeviceHealth(*KEY, health, checked),))
        told = self.memory.known()
        assert told is not None
        return told[KEY]


def test_nothing_is_known_before_the_first_look() -> None:
    assert Node().memory.known() is None


def test_an_ill_device_is_told_at_once_and_a_look_that_finds_the_same_is_no_change() -> None:
    node = Node()
    changes = []
    for checked, health in enumerate((WELL, GONE, GONE, WELL)):
        assert node.look(health, checked) == health
        changes.append(node.changes)
    assert changes == [1, 2, 2, 3]


def test_one_look_that_cannot_tell_changes_nothing_and_two_do() -> None:
    node = Node()
    looks = (WELL, BUSY, BUSY, WELL, BUSY, WELL, GONE, BUSY)
    assert [node.look(health) for health in looks] == [WELL, WELL, BUSY, WELL, WELL, WELL, GONE, GONE]


def test_the_first_look_counts_whatever_it_finds() -> None:
    assert Node().look(BUSY) == BUSY


def test_the_board_tells_it_of_each_look() -> None:
    board, node = HealthBoard(), Node()
    board.on_update(node.memory.update)
    board.update((DeviceHealth(*KEY, WELL, 1),))
    assert node.memory.known() == {KEY: WELL}


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


def blocked(node: FakeNode) -> list[tuple[str, str, int | None]]:
    node.health.run_once()
    return [
        (str(one.pci), one.reason, None if one.span is None else one.span.start)
        for one in node.watch.state().blocked
        if one.reason == "device-plugin"
    ]


def test_a_gpu_of_a_pod_of_a_device_plugin_is_blocked_until_the_pod_has_ended(node: FakeNode) -> None:
    second = node.gpus[1]
    node.given_by_device_plugins = {node.machine.uuid(second), "GPU-elsewhere"}
    assert blocked(node) == [(str(second), "device-plugin", None)]
    node.given_by_device_plugins = set()
    assert blocked(node) == []


def test_replicas_of_a_gpu_are_that_gpu(node: FakeNode) -> None:
    first = node.gpus[0]
    node.given_by_device_plugins = {f"{node.machine.uuid(first)}::{replica}" for replica in range(3)}
    assert blocked(node) == [(str(first), "device-plugin", None)]


def test_of_a_partition_its_place_is_blocked(node: FakeNode) -> None:
    node.cut_by_hand(ONE, 6, 1)
    mig = node.discovery.snapshot().gpus[0].mig
    assert mig is not None
    node.given_by_device_plugins = {mig.partitions[0].uuid}
    assert blocked(node) == [(str(node.gpus[0]), "device-plugin", 6)]


def test_what_was_known_stays_while_the_kubelet_does_not_tell(node: FakeNode) -> None:
    first = node.gpus[0]
    node.given_by_device_plugins = {node.machine.uuid(first)}
    before = blocked(node)
    node.given_by_device_plugins = PodResourcesUnavailable("no answer", "see that the kubelet runs")
    assert blocked(node) == before == [(str(first), "device-plugin", None)]
