"""A claim for a whole GPU that nobody shares costs nothing of partitions, and of sharing a look-up."""

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
MEMORY = f"{_PACKAGE / 'sharing' / 'memory'}/"
"""Limits of memory hear of every change of the journal."""

WHETHER_IT_IS_SHARED = {"plan.py wish_of", "claim_sharing.py ClaimShares.shared"}
"""Whether the device or its configuration asks for sharing."""

WHAT_EARLIER_SHARES_LEFT = {
    *(
        "claim_sharing.py ClaimShares.reach",
        "claim_sharing.py ClaimShares.clear",
        "gpus.py Sharing.records_on",
    ),
    "records.py SharingRecords.on",
}
"""Whether there is a record of an earlier share: a look at a folder, and at what was read from it before."""

SHARES_OF_THE_CLAIM = {"claim_sharing.py groups_of"}
"""Whether the claim has shares."""


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
        is_watched = code.co_filename.startswith(OF_OTHERS) and not code.co_filename.startswith(MEMORY)
        if event == "call" and is_watched:
            function = code.co_qualname.partition(".<locals>")[0]
            self._found.add(f"{Path(code.co_filename).name} {function}")


def test_prepare_and_unprepare_of_a_whole_gpu_only_look_whether_it_is_shared(tmp_path: Path) -> None:
    called = Called()
    with called.watching():
        node = FakeNode(tmp_path)
        claim = node.claim("train", 0)

        prepared = called.by(lambda: node.prepare(claim))
        again = called.by(lambda: node.prepare(claim))
        unprepared = called.by(lambda: node.unprepare(claim))
        node.stop()

    joined = {"claim_sharing.py ClaimShares.join", *SHARES_OF_THE_CLAIM}
    assert prepared - (WHETHER_IT_IS_SHARED | WHAT_EARLIER_SHARES_LEFT | joined) == set()
    assert again - joined == set()
    assert unprepared - {"claim_sharing.py ClaimShares.leave", *SHARES_OF_THE_CLAIM} == set()


def test_the_watch_sees_what_a_partition_costs(tmp_path: Path) -> None:
    called = Called()
    with called.watching():
        node = FakeNode(tmp_path, "hgx-h100")
        claim = node.claim_devices("small", node.partition(0, "1g.10gb", 0))

        prepared = called.by(lambda: node.prepare(claim))
        node.stop()

    assert "held.py HeldMade.make" in prepared
