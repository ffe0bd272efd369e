"""Many shares come and go at once: each is served, and the last one puts all back."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kubeletplugin.claims.journal.locks import gpu_key
from tests.eventually import eventually
from tests.gpus import DeviceHeld
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.share_node import H100_MIB
from tests.plugin import ClaimRef, MpsDaemon


def claimed(node: FakeNode, name: str = "a", form: str = "mps-4", gpu: int = 0) -> ClaimRef:
    return node.claim_shares(name, node.shared(form, gpu))


def test_the_last_share_may_leave_while_a_new_one_arrives(node: FakeNode) -> None:
    rounds = 40
    meet = threading.Barrier(3)

    def one(name: str, form: str) -> None:
        for number in range(rounds):
            ref = claimed(node, f"{name}-{number}", form)
            meet.wait(60)
            node.prepare(ref)
            assert node.compute_mode() == "exclusive-process"
            assert node.mps.running[node.whole()].active_thread_percentage == 25
            node.unprepare(ref)

    def keep() -> None:
        for _ in range(rounds):
            meet.wait(60)
            node.sharing_reconciler.run_once()

    with ThreadPoolExecutor(3) as pool:
        work = [pool.submit(one, name, "mps-4") for name in "ab"]
        work.append(pool.submit(keep))
        for done in work:
            done.result(120)
    node.assert_as_before()


def test_forty_eight_shares_may_arrive_at_once(node: FakeNode) -> None:
    refs = [claimed(node, f"c-{number}", "mps-48") for number in range(48)]
    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(node.prepare, refs))
        assert (node.mps.started, node.daemon_limits()) == (1, (2, (H100_MIB // 48,)))
        with pytest.raises(DeviceHeld):
            node.prepare(claimed(node, "one more", "mps-48"))
        list(pool.map(node.unprepare, refs))
    node.assert_as_before()


def test_a_replay_waits_while_another_share_is_worked_on(node: FakeNode) -> None:
    """Else it might ask for the limits of before after the other has asked for larger ones."""
    ref, other = claimed(node, "a"), claimed(node, "b")
    node.prepare(ref)
    replayed = threading.Event()
    threads = [threading.Thread(target=node.prepare, args=(ref,))]

    def while_locked(_: MpsDaemon) -> None:
        node.mps.on_ensure = lambda _: replayed.set()
        threads[0].start()
        eventually("both use the GPU", lambda: users_of_gpu(node) == 2 or replayed.is_set())
        assert not replayed.is_set()

    node.mps.on_ensure = while_locked
    node.prepare(other)
    threads[0].join(30)
    assert replayed.is_set()


def users_of_gpu(node: FakeNode) -> int:
    """How many calls hold the lock of the first GPU or wait for it."""
    locks = node.preparer._locks._locks  # noqa: SLF001 - nothing else tells that somebody waits
    return locks[gpu_key(str(node.gpus[0]))][1]
