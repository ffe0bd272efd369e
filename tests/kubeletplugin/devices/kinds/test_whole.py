"""A claim for a whole GPU that nobody shares enters neither the code of sharing nor that of partitions."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import kubeletplugin
from tests.kubeletplugin.fake_node import FakeNode

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


def test_the_watch_sees_what_a_partition_costs(tmp_path: Path) -> None:
    called = Called()
    with called.watching():
        node = FakeNode(tmp_path, "hgx-h100")
        claim = node.claim_devices("small", node.partition(0, "1g.10gb", 0))

        prepared = called.by(lambda: node.prepare(claim))
        node.stop()

    assert "held.py HeldMade.make" in prepared
