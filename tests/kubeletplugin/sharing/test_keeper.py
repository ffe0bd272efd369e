"""The keeper has every group as the journal says, ends what nobody needs, and passes on how daemons are."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from kubeletplugin.sharing.gpus import SLICE_CHECK_SECONDS
from tests.gpus import BlockedPlacement, NodeState, PciAddress, Problem
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.fake_sharing import FakeMps
from tests.kubeletplugin.heard_states import watching
from tests.kubeletplugin.share_node import class_slicing
from tests.plugin import MpsDaemon, MpsState, NotReady, ProgramHangs
from tests.running import running

States = tuple[MpsState, ...] | None


def later(node: FakeNode) -> None:
    """Have so much time gone by that a time-slice is looked at again."""
    clock = node.sharing_reconciler._sharing._clock  # noqa: SLF001 - the one clock that the test moves
    node.sharing_reconciler._sharing._clock = lambda: clock() + SLICE_CHECK_SECONDS  # noqa: SLF001 - likewise


class TellingMps(FakeMps):
    """A supervisor that tells what a test puts into it, until it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.told: queue.Queue[tuple[States] | None] = queue.Queue()
        self.followed = threading.Event()
        self.heard: queue.SimpleQueue[States] = queue.SimpleQueue()

    def follow(self, update: Callable[[States], object]) -> None:
        self.followed.set()
        while (one := self.told.get()) is not None:
            update(one[0])
            self.heard.put(one[0])

    def close(self) -> None:
        super().close()
        self.told.put(None)


@contextmanager
def following(node: FakeNode) -> Iterator[TellingMps]:
    """The node's keeper follows a supervisor that has the daemons of the one of before."""
    telling = TellingMps()
    telling.running = node.mps.running
    node.mps = telling
    node.restart()
    with running(node.sharing_reconciler.follow, node.sharing_reconciler.stop):
        yield telling


def tell(node: FakeNode, telling: TellingMps, *names: str) -> None:
    """Let the supervisor tell of daemons that run, and wait until it was passed on."""
    node.mps.note_use()
    states = tuple(MpsState(name, running=True) for name in names)
    telling.told.put((states,))
    assert telling.heard.get(timeout=30) == states


def test_a_gpu_whose_time_slice_was_lost_to_a_reset_gets_it_back(node: FakeNode) -> None:
    ref = node.prepared_shares("a", node.shared("ts-4"), config=class_slicing("Long"))
    assert node.interval() == "Long"
    node.machine.reset(node.gpus[0])
    assert node.interval() == "Default"

    later(node)
    node.sharing_reconciler.run_once()

    assert node.interval() == "Long"
    calls = node.time_slices.calls
    node.sharing_reconciler.run_once()
    assert node.time_slices.calls == calls, "what is as it has to be is left alone"
    node.unprepare(ref)
    node.assert_as_before()


def test_nvidia_smi_is_not_started_for_a_time_slice_that_was_just_set_or_seen(node: FakeNode) -> None:
    """It takes a second on a real node, in which the claims of the GPU wait."""
    node.prepared_shares("a", node.shared("ts-4"), config=class_slicing("Long"))
    for looks in (0, 1):
        for _ in range(3):
            node.sharing_reconciler.run_once()
        assert node.time_slices.looks == looks
        later(node)


def test_a_gpu_for_which_a_program_of_the_driver_hangs_is_blocked_until_it_ends_again(node: FakeNode) -> None:
    with watching(node) as told:
        device = node.shared("ts-4")
        node.prepared_shares("a", device, config=class_slicing("Long"))
        told.wait(NodeState((device,)))
        node.time_slices.failures = [ProgramHangs("nvidia-smi did not end within 10 s")]
        later(node)
        node.sharing_reconciler.run_once()
        place = BlockedPlacement(node.gpus[0], None, "driver-hangs", "nvidia-smi did not end within 10 s")
        told.wait(NodeState((device,), (place,)))
        node.sharing_reconciler.run_once()
        told.wait(NodeState((device,)))


def test_shares_that_a_program_hangs_for_are_blocked_and_then_those_of_the_node(node: FakeNode) -> None:
    """NVIDIA's programs open every GPU, so that one that hangs makes them hang for all others."""

    def blocked(*problems: Problem) -> set[PciAddress]:
        inventory = node.discovery.snapshot()
        last = replace(inventory.gpus[-1], problems=problems)
        node.watch.saw(replace(inventory, gpus=(*inventory.gpus[:-1], last)), ())
        return {one.pci for one in node.watch.state().blocked if one.reason == "nvidia-smi-hangs"}

    refs = [node.claim_shares(f"on-{gpu}", node.shared("ts-4", gpu)) for gpu in (0, 1)]
    for ref, expected in zip(refs, (node.gpus[:1], node.gpus), strict=True):
        node.time_slices.failures = [ProgramHangs("nvidia-smi did not end within 10 s")]
        with pytest.raises(NotReady):
            node.prepare(ref)
        assert blocked() == set(expected)
    node.prepare(refs[0])
    assert blocked() == {node.gpus[1]}
    assert blocked(Problem("nvmlDeviceGetUUID", "hung", "")) == set(node.gpus)
    node.prepare(refs[1])
    assert blocked() == set()


def test_a_call_that_is_nearly_over_has_too_little_time_to_say_that_a_program_hangs(node: FakeNode) -> None:
    node.time_slices.failures = [ProgramHangs("nvidia-smi did not end within 1 s")]
    call = replace(node.call(), remaining_seconds=lambda: 4.0)
    with pytest.raises(NotReady):
        node.prepare(node.claim_shares("a", node.shared("ts-4")), call)
    assert node.watch.state().blocked == ()


def test_how_the_daemons_are_becomes_the_state_of_the_node(node: FakeNode) -> None:
    with following(node) as telling, watching(node) as told:
        device = node.shared("mps-4")
        node.prepared_shares("a", device)
        tell(node, telling)
        message = f"{device}: its MPS control daemon does not exist"
        told.wait(NodeState((device,), (BlockedPlacement(node.gpus[0], None, "mps-daemon", message),)))
        tell(node, telling, node.whole())
        told.wait(NodeState((device,)))
        telling.told.put((None,))
        message = f"{device}: the MPS supervisor of the node does not answer"
        told.wait(NodeState((device,), (BlockedPlacement(node.gpus[0], None, "mps-daemon", message),)))


def test_a_daemon_without_a_share_is_ended_and_its_gpu_put_back(node: FakeNode) -> None:
    """Its record was lost with the plugin's folder, and so was all that stood in the journal."""
    with following(node) as telling:
        node.handle().set_compute_mode("exclusive-process")
        telling.running[node.whole()] = MpsDaemon(node.whole(), (node.uuid(),))
        tell(node, telling, node.whole(), "not-ours")
        node.sharing_reconciler.run_once()
        node.assert_as_before()


def test_a_daemon_that_has_shares_again_stays(node: FakeNode) -> None:
    """It is older than what the supervisor told, and its record younger than the keeper's look."""
    with following(node) as telling:
        node.prepared_shares("a", node.shared("mps-4"))
        (node.boot_files / "sharing" / f"{node.whole()}.json").unlink()
        node.read_anew()
        tell(node, telling, node.whole())
        node.sharing_reconciler.run_once()
        assert list(telling.running) == node.recorded() == [node.whole()]


def test_a_daemon_beside_time_slices_is_ended_and_the_slices_stay(node: FakeNode) -> None:
    with following(node) as telling:
        node.prepared_shares("a", node.shared("ts-4"), config=class_slicing("Long"))
        telling.running[node.whole()] = MpsDaemon(node.whole(), (node.uuid(),))
        tell(node, telling, node.whole())
        node.sharing_reconciler.run_once()
        assert (telling.running, node.interval(), node.recorded()) == ({}, "Long", [node.whole()])


def test_a_daemon_that_a_lost_claim_may_have_stays(node: FakeNode) -> None:
    ref = node.prepared_shares("a", node.shared("mps-4"))
    node.entry_file(ref).write_text("{")
    (node.boot_files / "sharing" / f"{node.whole()}.json").unlink()
    node.read_anew()
    with following(node) as telling:
        tell(node, telling, node.whole())
        node.sharing_reconciler.run_once()
        assert list(telling.running) == [node.whole()]
        node.unprepare(ref)
        node.sharing_reconciler.run_once()
        node.assert_as_before()
