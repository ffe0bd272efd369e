"""What memory claims and containers have and use is told, and a limit that is not held."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from driver.process.fresh_reading import FreshReading
from kubeletplugin.reports.memory_watch import Containers, Key, MemoryListeners, MemoryWatch, memory_uses
from tests.gpus import StorageError
from tests.kubeletplugin.reports.memory_claims import DEVICE, GIB, PCI, UUID, claim, container, share
from tests.plugin import ContainerMemory, DeviceMemory, Entry
from tests.running import running

Told = dict[tuple[str, str, str], dict[str, float]]
"""Amounts by claim, share and container, which is empty for the claim as a whole."""


def uses(entries: list[Entry], containers: Containers | None = ()) -> Told:
    found: Told = {}
    for one in memory_uses(entries, "", lambda: containers):
        key = (one.labels["claim"], one.labels["share_id"], one.labels.get("claim_container", ""))
        amount = one.series.rpartition("_memory_")[2].removesuffix("_bytes")
        found.setdefault(key, {})[amount] = one.value
    return found


def test_a_claim_is_told_with_its_limit_and_what_all_of_its_containers_use() -> None:
    found = uses([claim("a", share("a"))], (container("a", 3 * GIB), container("a", GIB, "sidecar")))

    half = {"limit": 5 * GIB}
    assert found == {
        ("a", "share-a", ""): {"limit": 10 * GIB, "used": 4 * GIB},
        ("a", "share-a", "main"): {**half, "used": 3 * GIB},
        ("a", "share-a", "sidecar"): {**half, "used": GIB},
    }


def test_the_labels_say_whose_device_it_is_on_which_gpu_and_in_which_container() -> None:
    readings = list(memory_uses([claim("a")], "", lambda: (container("a", GIB),)))

    of_claim = {
        "claim_namespace": "team",
        "claim": "a",
        "device": DEVICE,
        "share_id": "share-a",
        "uuid": UUID,
        "pci_bus_id": PCI,
    }
    assert {tuple(one.labels.items()) for one in readings} == {
        tuple(of_claim.items()),
        (*of_claim.items(), ("claim_pod", "pod"), ("claim_container", "main")),
    }


def test_a_claim_without_a_live_container_uses_nothing_and_what_is_not_known_is_left_out() -> None:
    assert uses([claim("a")], ()) == {("a", "share-a", ""): {"limit": 10 * GIB, "used": 0}}
    assert uses([claim("a")], None) == {("a", "share-a", ""): {"limit": 10 * GIB}}


def test_claims_that_are_held_to_nothing_or_not_prepared_are_not_looked_at() -> None:
    def look() -> Containers:
        raise AssertionError("it is looked at")

    others = [
        claim("a", share("a", memory_limit_bytes=None)),
        replace(claim("c"), state="releasing"),
        replace(claim("d"), state="lost"),
    ]
    assert list(memory_uses(others, "", look)) == []


def test_one_container_of_which_it_is_not_known_leaves_its_claim_unknown() -> None:
    containers = (container("a", GIB), container("a", None, "sidecar"), container("b", GIB))

    found = uses([claim("a"), claim("b")], containers)

    used = {(uid, name): told.get("used") for (uid, _, name), told in found.items()}
    assert used == {
        ("a", ""): None,
        ("a", "main"): GIB,
        ("a", "sidecar"): None,
        ("b", ""): GIB,
        ("b", "main"): GIB,
    }


def test_a_container_that_is_there_twice_for_a_moment_is_one_series() -> None:
    found = uses([claim("a")], (container("a", GIB), container("a", GIB, hard_bytes=GIB)))

    assert found["a", "share-a", "main"] == {"limit": 6 * GIB, "used": 2 * GIB}


def test_two_shares_of_one_gpu_in_one_claim_are_told_apart() -> None:
    second = share("a", 2 * GIB, share_id="other", cdi_device="a-other")

    found = uses([claim("a", share("a"), second)])

    assert {key[1]: told["limit"] for key, told in found.items()} == {"share-a": 10 * GIB, "other": 2 * GIB}


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
    with running(node.look.run, node.look.stop):
        yield node


def test_a_limit_that_is_not_held_is_told_once_and_again_when_it_is_held(node: Node) -> None:
    assert node.news() == []
    node.faults = {A: WHY}
    assert node.news() == [f"lost a: {DEVICE}: {WHY}", "changed"]
    assert node.watch.known() == {A: DeviceMemory(WHY)}
    assert node.news() == []
    node.entries.append(claim("b"))
    node.faults = {A: "the GPU hangs"}
    assert node.news() == [f"lost a: {DEVICE}: the GPU hangs", "changed"]
    node.faults = {A: "the GPU hangs", ("b", f"b-{DEVICE}"): WHY}
    assert node.news() == [f"lost b: {DEVICE}: {WHY}", "changed"]

    node.entries.pop()
    node.faults = {}
    assert node.news() == [f"held a: {DEVICE}: its memory limit is held again", "changed"]
    assert node.watch.known() == {}


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
    node.entries = [claim("a"), claim("c", share("c", memory_limit_bytes=None))]
    node.faults = {A: WHY}
    node.news()
    node.use(container("a", GIB), container("c", GIB))
    assert node.watch.known() == {A: DeviceMemory(WHY, GIB)}
    node.use(container("a", None))
    assert node.watch.known() == {A: DeviceMemory(WHY)}


def test_a_look_that_is_late_once_changes_nothing_and_twice_leaves_nothing_known(node: Node) -> None:
    node.use(container("a", GIB))
    node.failure = StorageError("the ledger cannot be read")

    assert not node.use()
    assert node.watch.known() == {A: DeviceMemory(used_bytes=GIB)}
    assert node.use()
    assert node.watch.known() == {}
    node.failure = None
    assert node.use(container("a", GIB))
