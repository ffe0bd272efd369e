"""What the health stream tells is remembered, and one look that nobody could make changes nothing."""

from __future__ import annotations

from driver.health.verdict import Health
from kubeletplugin.kubelet.wire.health_board import DeviceHealth, HealthBoard
from kubeletplugin.reports.device_status import HealthTracker

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
