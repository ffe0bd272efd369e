"""The plugin may end between any two steps of a share: what comes next does the rest or puts all back."""

from __future__ import annotations

import contextlib

import pytest

from driver.errors import ClaimRefused
from kubeletplugin.kubelet.wire.claim_call import ClaimRef
from tests.kubeletplugin.fake_node import Crash, FakeNode
from tests.kubeletplugin.share_node import class_slicing, mps

WRITTEN = ("committed", "metadata written", "spec written")
SERVED = ("begun", "sharing noted", "compute mode", "daemon", *WRITTEN)
STEPS = {
    "mps": SERVED,
    "ts": ("begun", "sharing noted", "compute mode", "time-slice", *WRITTEN),
    "own": SERVED,
    "part": ("begun", "gpu instance", "compute instance", "made", "sharing noted", "daemon", *WRITTEN),
}
LEFT = ("spec removed", "daemon stopped", "compute mode restored", "sharing forgotten", "released")
BACK = {
    "mps": LEFT,
    "ts": ("spec removed", "compute mode restored", "time-slice restored", "sharing forgotten", "released"),
    "own": LEFT,
    "part": ("spec removed", "daemon stopped", "sharing forgotten", "releasing", "destroyed", "released"),
}


def claimed(node: FakeNode, kind: str, name: str = "a") -> ClaimRef:
    """A claim of this kind for the first GPU, of which the second is a part as well for ``own``."""
    if kind == "own":
        return node.claim(name, 0, 1, config=mps())
    if kind == "part":
        return node.claim_shares(name, f"{node.partition(0, '1g.10gb', 6)}-mps-2")
    config = class_slicing("Long") if kind == "ts" else []
    return node.claim_shares(name, node.shared(f"{kind}-4"), config=config)


def assert_shared(node: FakeNode, kind: str, ref: ClaimRef) -> None:
    """The claim is prepared, and its GPU is as its share needs it."""
    assert node.entry(ref).state == "prepared"
    assert node.spec_path(ref).exists()
    if kind == "ts":
        assert (node.interval(), node.compute_mode(), node.mps.running) == ("Long", "default", {})
    elif kind == "part":
        assert (len(node.mps.running), node.starts()) == (1, [6])
    else:
        assert (node.compute_mode(), list(node.mps.running)) == ("exclusive-process", [node.whole()])


def crashed(node: FakeNode, kind: str, step: str) -> ClaimRef:
    """A prepare that ended after a step."""
    if kind == "ts":
        set_prohibited(node)
    ref = claimed(node, kind)
    node.crash_after = step
    with pytest.raises(Crash):
        node.prepare(ref)
    return ref


def set_prohibited(node: FakeNode) -> None:
    """Let there be a compute mode that time-slices have to change."""
    node.handle().set_compute_mode("prohibited")


def assert_put_back(node: FakeNode, kind: str, *, rebooted: bool = False) -> None:
    if kind == "ts" and not rebooted:
        assert node.compute_mode() == "prohibited"
        node.handle().set_compute_mode("default")
    node.assert_as_before()
    assert node.starts() == []
    assert list(node.cdi.iterdir()) == []


ALL_STEPS = [(kind, step) for kind, steps in STEPS.items() for step in steps]
ALL_BACK = [(kind, step) for kind, steps in BACK.items() for step in steps]


@pytest.mark.parametrize(("kind", "step"), ALL_STEPS)
@pytest.mark.parametrize("keeper", [False, True], ids=["", "keeper first"])
def test_a_prepare_that_ended_is_finished_by_its_replay(
    node: FakeNode, kind: str, step: str, *, keeper: bool
) -> None:
    ref = crashed(node, kind, step)
    node.restart()
    if keeper:
        node.sharing_reconciler.run_once()
    assert node.prepare(ref)
    assert_shared(node, kind, ref)
    node.sharing_reconciler.run_once()
    assert_shared(node, kind, ref)
    node.unprepare(ref)
    assert_put_back(node, kind)


@pytest.mark.parametrize(("kind", "step"), ALL_STEPS)
def test_a_prepare_that_ended_can_be_unprepared_instead(node: FakeNode, kind: str, step: str) -> None:
    ref = crashed(node, kind, step)
    node.restart()
    node.unprepare(ref)
    assert_put_back(node, kind)
    assert node.prepare(node.claim("next", 0, 1))


@pytest.mark.parametrize(("kind", "step"), ALL_STEPS)
def test_after_a_prepare_that_ended_another_share_joins_and_both_leave(
    node: FakeNode, kind: str, step: str
) -> None:
    ref = crashed(node, kind, step)
    node.restart()
    if kind != "own":
        other = claimed(node, kind, "b")
        assert node.prepare(other)
        assert_shared(node, kind, other)
        node.unprepare(other)
    node.unprepare(ref)
    assert_put_back(node, kind)


@pytest.mark.parametrize(("kind", "step"), ALL_STEPS)
@pytest.mark.parametrize("then", ["prepare", "unprepare"])
def test_a_reboot_after_a_prepare_that_ended_leaves_nothing(
    node: FakeNode, kind: str, step: str, then: str
) -> None:
    ref = crashed(node, kind, step)
    node.reboot()
    node.sharing_reconciler.run_once()
    if then == "prepare":
        assert node.prepare(ref)
        assert_shared(node, kind, ref)
    node.unprepare(ref)
    assert_put_back(node, kind, rebooted=True)


@pytest.mark.parametrize(("kind", "step"), ALL_BACK)
@pytest.mark.parametrize("then", ["unprepare", "prepare", "keeper", "next"])
def test_an_unprepare_that_ended_is_finished(node: FakeNode, kind: str, step: str, then: str) -> None:
    if kind == "ts":
        set_prohibited(node)
    ref = claimed(node, kind)
    node.prepare(ref)
    node.crash_after = step
    with pytest.raises(Crash):
        node.unprepare(ref)
    node.restart()
    if then == "prepare":
        assert node.prepare(ref)
        assert_shared(node, kind, ref)
    elif then == "keeper":
        node.reconciler.finish_releases()
        node.sharing_reconciler.run_once()
        if node.entry(ref).state == "prepared" and kind != "ts":
            assert node.mps.running, "the journal says that the claim has its share"
    elif then == "next" and kind in ("mps", "ts"):
        other = claimed(node, kind, "b")
        assert node.prepare(other)
        assert_shared(node, kind, other)
        node.unprepare(other)
    node.unprepare(ref)
    assert_put_back(node, kind)
    assert node.prepare(node.claim("next", 0, 1))


@pytest.mark.parametrize("step", BACK["mps"])
def test_the_keeper_may_end_at_any_step_as_well(node: FakeNode, step: str) -> None:
    ref = claimed(node, "mps")
    node.prepare(ref)
    node.mps.silent = True
    node.unprepare(ref)
    node.mps.silent = False
    node.crash_after = step
    with contextlib.suppress(Crash):
        node.sharing_reconciler.run_once()
    node.crash_after = None
    node.restart()
    node.sharing_reconciler.run_once()
    assert_put_back(node, "mps")


LEFTOVERS = ("daemon stopped", "compute mode restored", "sharing forgotten")
"""The steps by which a prepare puts back what a share that has ended left on the GPU."""


@pytest.mark.parametrize("step", [*LEFTOVERS, "committed", "metadata written", "spec written"])
def test_a_whole_gpu_is_handed_out_without_what_an_ended_share_left(node: FakeNode, step: str) -> None:
    ref = claimed(node, "mps")
    node.prepare(ref)
    node.mps.silent = True
    node.unprepare(ref)
    node.mps.silent = False
    assert node.compute_mode() == "exclusive-process", "the share has left something"

    following = node.claim("next", 0)
    node.crash_after = step
    with pytest.raises(Crash):
        node.prepare(following)
    node.crash_after = None
    node.restart()

    assert node.prepare(following)
    assert node.entry(following).state == "prepared"
    node.unprepare(following)
    assert_put_back(node, "mps")


def test_a_daemon_that_started_before_it_was_noted_is_known_all_the_same(node: FakeNode) -> None:
    """The supervisor has it, the answer was on its way: the record was written before it was asked."""

    def die(_: object) -> None:
        node.mps.on_ensure = lambda _: None
        raise Crash("on its way")

    node.mps.on_ensure = die
    ref = claimed(node, "mps")
    with pytest.raises(Crash):
        node.prepare(ref)
    node.restart()
    node.unprepare(ref)
    assert_put_back(node, "mps")


@pytest.mark.parametrize("step", ["daemon", "committed"])
def test_the_larger_share_of_two_may_end(node: FakeNode, step: str) -> None:
    """Until it is let go the others are as they were, and afterwards they have no more than before."""
    device = node.shared("mps-4")
    small, large = node.claim_shares("small", device), node.claim_shares("large", f"{device}+{device}")
    node.prepare(small)
    before = node.daemon_limits()
    node.crash_after = step
    with pytest.raises(Crash):
        node.prepare(large)
    node.restart()
    node.sharing_reconciler.run_once()
    assert node.daemon_limits()[0] == 50
    node.api.pop((large.namespace, large.name))
    if step == "daemon":
        with pytest.raises(ClaimRefused):
            node.prepare(large)
    node.unprepare(large)
    assert node.daemon_limits() == before
    assert_shared(node, "mps", small)
