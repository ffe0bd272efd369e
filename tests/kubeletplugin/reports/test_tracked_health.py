"""What the health stream tells is remembered, and one look that nobody could make changes nothing."""

from __future__ import annotations

from typing import Literal

from kubeletplugin.kubelet.wire.health_board import DeviceHealth, HealthBoard
from kubeletplugin.reports.device_status import HealthTracker, Ill

KEY = ("pool", "gpu-0")
Word = Literal["unknown", "healthy", "unhealthy"]


class Node:
    """One device, what is remembered of it, and how often that changed."""

    def __init__(self) -> None:
        self.changes = 0
        self.memory = HealthTracker(self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def look(self, health: Word, message: str = "", reason: str = "", checked: int = 0) -> Ill | None:
        self.memory.update((DeviceHealth(*KEY, health, checked, message, reason),))
        told = self.memory.known()
        assert told is not None
        return told[KEY]


def test_nothing_is_known_before_the_first_look() -> None:
    assert Node().memory.known() is None


def test_an_ill_device_is_told_at_once_and_a_look_that_finds_the_same_is_no_change() -> None:
    node = Node()
    assert node.look("healthy") is None
    assert node.look("unhealthy", "gone", "GpuLost", checked=1) == Ill("False", "GpuLost", "gone")
    assert node.changes == 2
    node.look("unhealthy", "gone", "GpuLost", checked=2)
    assert node.changes == 2
    assert node.look("healthy", checked=3) is None
    assert node.changes == 3


def test_one_look_that_cannot_tell_changes_nothing_and_two_do() -> None:
    node = Node()
    node.look("healthy")
    assert node.look("unknown", "busy") is None
    assert node.look("unknown", "busy") == Ill("Unknown", "Unknown", "busy")
    assert node.look("healthy") is None
    assert node.look("unknown", "busy") is None
    assert node.look("healthy") is None


def test_an_ill_device_stays_ill_while_nobody_can_tell_for_a_moment() -> None:
    node = Node()
    node.look("unhealthy", "gone", "GpuLost")
    assert node.look("unknown", "busy") == Ill("False", "GpuLost", "gone")


def test_the_first_look_counts_whatever_it_finds() -> None:
    assert Node().look("unknown", "no driver", "DriverNotLoaded") == Ill(
        "Unknown", "DriverNotLoaded", "no driver"
    )


def test_a_word_stands_in_where_the_look_gives_no_reason() -> None:
    assert Node().look("unhealthy", "gone") == Ill("False", "Unhealthy", "gone")


def test_the_board_tells_it_of_each_look() -> None:
    board, node = HealthBoard(), Node()
    board.on_update(node.memory.update)
    board.update((DeviceHealth(*KEY, "healthy", 1),))
    assert node.memory.known() == {KEY: None}
