"""A limit that is not held is told once, and again when it is held; what is used where it changes much."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from driver.errors import StorageError
from driver.process.fresh_reading import FreshReading
from kubeletplugin.claims.journal.entry import Entry
from kubeletplugin.kubelet.wire.containers import ContainerMemory
from kubeletplugin.reports.device_status import DeviceMemory
from kubeletplugin.reports.memory_watch import Key, MemoryListeners, MemoryWatch
from tests.kubeletplugin.reports.memory_claims import DEVICE, GIB, claim, container, share

A: Key = ("a", f"a-{DEVICE}")
WHY = "NVML does not hold it"


class Node:
    """The claims of a node, what is wrong with their limits, what they use, and what was told."""

    def __init__(self) -> None:
        self.entries: list[Entry] = [claim("a")]
        self.faults: dict[Key, str] = {}
        self.containers: tuple[ContainerMemory, ...] = ()
        self.heard: list[str] = []
        self.clock = 0.0
        self.failure: StorageError | None = None
        self.look = FreshReading("memory", self._used, 30.0, lambda: self.clock)
        self.watch = MemoryWatch(
            lambda: self.entries,
            lambda: self.faults,
            self.look.now,
            MemoryListeners(
                lambda entry, words: self.heard.append(f"lost {entry.name}: {words}"),
                lambda entry, words: self.heard.append(f"held {entry.name}: {words}"),
                lambda: self.heard.append("changed"),
            ),
        )

    def _used(self) -> tuple[ContainerMemory, ...]:
        if self.failure is not None:
            raise self.failure
        return self.containers

    def news(self) -> list[str]:
        """What was heard since the last call, after a look at what is wrong."""
        self.watch.see_faults()
        heard, self.heard = self.heard, []
        return heard

    def use(self, *containers: ContainerMemory) -> bool:
        """Whether it is told that the containers use this."""
        self.containers = containers
        self.clock += 5
        self.watch.see_use()
        heard, self.heard = self.heard, []
        return heard == ["changed"]


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    thread = threading.Thread(target=node.look.run)
    thread.start()
    yield node
    node.look.stop()
    thread.join()


def test_a_limit_that_is_not_held_is_told_once_and_again_when_it_is_held(node: Node) -> None:
    assert node.news() == []
    node.faults = {A: WHY}
    assert node.news() == [f"lost a: {DEVICE}: {WHY}", "changed"]
    assert node.watch.known() == {A: DeviceMemory(WHY)}
    assert node.news() == []

    node.faults = {}
    assert node.news() == [f"held a: {DEVICE}: its memory limit is held again", "changed"]
    assert node.watch.known() == {}


def test_what_is_told_already_is_not_told_again_with_the_news_of_another_claim(node: Node) -> None:
    other: Key = ("b", f"b-{DEVICE}")
    node.entries.append(claim("b"))
    node.faults = {A: WHY}
    node.news()
    node.faults = {A: WHY, other: WHY}
    assert node.news() == [f"lost b: {DEVICE}: {WHY}", "changed"]


def test_another_reason_is_news(node: Node) -> None:
    node.faults = {A: WHY}
    node.news()
    node.faults = {A: "the GPU hangs"}
    assert node.news() == [f"lost a: {DEVICE}: the GPU hangs", "changed"]


@pytest.mark.parametrize("gone", ["let go", "nameless"])
def test_of_a_claim_that_is_let_go_or_has_no_name_nobody_is_told(node: Node, gone: str) -> None:
    entry = node.entries[0]
    node.entries = [replace(entry, state="releasing") if gone == "let go" else replace(entry, name="")]
    node.faults = {A: WHY, ("strange", "strange-gpu"): WHY}
    assert node.news() == ["changed"]


def test_slow_growth_is_told_too(node: Node) -> None:
    told = [used for used in range(1000, 1101, 10) if node.use(container("a", used))]
    assert told == [1000, 1060]


def test_all_containers_of_a_claim_count_together_and_one_without_any_uses_nothing(node: Node) -> None:
    node.entries.append(claim("b"))
    assert node.use(container("a", GIB), container("a", GIB, "sidecar"))
    assert {key[0]: one.used_bytes for key, one in node.watch.known().items()} == {"a": 2 * GIB, "b": 0}


def test_what_is_not_known_any_more_is_not_told(node: Node) -> None:
    node.use(container("a", GIB))
    assert node.use(container("a", None))
    assert node.watch.known() == {}


def test_a_look_that_is_late_once_changes_nothing_and_twice_leaves_nothing_known(node: Node) -> None:
    node.use(container("a", GIB))
    node.failure = StorageError("the ledger cannot be read")

    assert not node.use()
    assert node.watch.known() == {A: DeviceMemory(used_bytes=GIB)}
    assert node.use()
    assert node.watch.known() == {}
    node.failure = None
    assert node.use(container("a", GIB))


def test_a_claim_that_nobody_holds_to_its_memory_is_not_told(node: Node) -> None:
    node.entries = [claim("a", share("a", memory_limit_bytes=None))]
    assert not node.use(container("a", GIB))
    assert node.watch.known() == {}


def test_fault_and_use_are_told_together(node: Node) -> None:
    node.use(container("a", GIB))
    node.faults = {A: WHY}
    node.news()
    assert node.watch.known() == {A: DeviceMemory(WHY, GIB)}
