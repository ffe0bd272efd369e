"""Two claims that were given one device without a GPU: one gets it, however close together they come."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest

from driver.errors import DeviceHeld, DriverError
from kubeletplugin.claims.journal.entry import Entry, Record
from kubeletplugin.devices.kinds.kind import HardwareNow, HeldKind, Note
from kubeletplugin.devices.kinds.registry import HELD_KINDS
from kubeletplugin.kubelet.wire.claim_call import ClaimRef
from tests.kubeletplugin.fake_node import FakeNode
from tests.toy_kind.held import HeldToy

_A_MOMENT_SECONDS = 0.2


@pytest.fixture
def open_node(tmp_path: Path) -> Iterator[Callable[..., FakeNode]]:
    with ExitStack() as cleanup:

        def opened(toy: type[HeldKind]) -> FakeNode:
            cleanup.enter_context(HELD_KINDS.added(toy))
            node = FakeNode(tmp_path)
            cleanup.callback(node.stop)
            return node

        yield opened


def test_a_toy_that_another_claim_holds_is_refused_until_that_one_lets_go(
    open_node: Callable[..., FakeNode],
) -> None:
    node = open_node(HeldToy)
    first, second = (node.claim_devices(name, "toy-0") for name in ("first", "second"))
    node.prepare(first)

    with pytest.raises(DeviceHeld, match="toy-0 is still held by another claim"):
        node.prepare(second)
    node.unprepare(first)

    (prepared,) = node.prepare(second)
    assert prepared.device == "toy-0"


def test_two_claims_that_come_at_once_do_not_both_get_it(open_node: Callable[..., FakeNode]) -> None:
    answers: list[str] = []

    def try_second() -> None:
        try:
            node.prepare(second)
            answers.append("prepared")
        except DriverError as error:
            answers.append(type(error).__name__)

    rival = Thread(target=try_second)

    class Slow(HeldToy):
        """A toy that another claim asks for while it is made."""

        def make(self, entry: Entry, index: int, hardware: HardwareNow, note: Note) -> Record:
            """Let the other one come as far as it gets."""
            if not rival.ident:
                rival.start()
                rival.join(_A_MOMENT_SECONDS)
            return super().make(entry, index, hardware, note)

    node = open_node(Slow)
    first, second = (node.claim_devices(name, "toy-0") for name in ("first", "second"))

    node.prepare(first)
    rival.join()

    assert answers == ["DeviceHeld"]
    assert held_by(node, first, second) == [first.uid]


def held_by(node: FakeNode, *claims: ClaimRef) -> list[str]:
    """The claims that hold something."""
    entries = [node.journal.get(claim.uid) for claim in claims]
    return [entry.uid for entry in entries if entry is not None and entry.holds]
