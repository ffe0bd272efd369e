"""Each kind that is offered can be prepared: both halves say the same word."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import kubeletplugin
from driver.kinds.registry import KINDS
from kubeletplugin.claims.journal.entry import HeldDevice
from kubeletplugin.devices.kinds.registry import HELD_KINDS
from tests.kubeletplugin.fake_node import FakeNode
from tests.toy_kind.held import HeldToy

MACHINE = "a30-quad"


def held(device: str, kind: str) -> HeldDevice:
    return HeldDevice("gpu", "pool", device, "", "", "cdi", kind=kind)


def test_every_kind_that_is_offered_has_a_half_on_the_node_and_the_other_way_round(node: FakeNode) -> None:
    assert [one.offered for one in node.kinds] == list(KINDS)


def test_the_halves_find_each_other_by_the_word(node: FakeNode) -> None:
    for kind in node.kinds:
        assert node.kinds.of(held("anything", kind.offered.word)) is kind


def test_a_kind_from_elsewhere_is_one_more_beside_the_drivers_own(tmp_path: Path) -> None:
    before = [kind.word for kind in KINDS]
    with HELD_KINDS.added(HeldToy):
        node = FakeNode(tmp_path)
        toy = held("toy-0", "toy").offered

    assert [one.offered.word for one in node.kinds] == [*before, "toy"]
    assert (toy, held("toy-0", "toy").offered) == (HeldToy.offered, None), "both halves, within the block"
    node.stop()


def test_a_node_that_does_not_know_a_kind_keeps_what_its_claims_hold(node: FakeNode) -> None:
    unknown = node.kinds.of(held("toy-0", "toy"))

    assert unknown not in list(node.kinds)
    assert unknown.is_made(held("toy-0", "toy"))


_PACKAGE = Path(kubeletplugin.__file__).parent
OF_OTHERS = (f"{_PACKAGE / 'devices' / 'kinds' / 'partition'}/", f"{_PACKAGE / 'sharing'}/")


class Called:
    """The functions of partitions and of sharing that were called, in any thread that began meanwhile."""

    def __init__(self) -> None:
        self._found: set[str] = set()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch this thread, and those that it starts."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def by(self, work: Callable[[], object]) -> set[str]:
        """What a piece of work calls."""
        self._found.clear()
        work()
        return set(self._found)

    def _profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(OF_OTHERS):
            function = code.co_qualname.partition(".<locals>")[0]
            self._found.add(f"{Path(code.co_filename).name} {function}")


def test_prepare_and_unprepare_of_a_whole_gpu_enter_neither_sharing_nor_partitions(tmp_path: Path) -> None:
    called = Called()
    with called.watching():
        node = FakeNode(tmp_path)
        claim = node.claim("train", 0)

        prepared = called.by(lambda: node.prepare(claim))
        again = called.by(lambda: node.prepare(claim))
        unprepared = called.by(lambda: node.unprepare(claim))
        node.stop()

    assert (prepared, again, unprepared) == (set(), set(), set())
