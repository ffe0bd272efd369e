"""The plugin may end while it puts back what a share left, or while a daemon starts or gets other limits."""

import contextlib

import pytest

from tests.kubeletplugin.fake_node import Crash, FakeNode

LEFT = ("spec removed", "daemon stopped", "compute mode restored", "sharing forgotten", "released")


@pytest.mark.parametrize("step", LEFT)
def test_the_keeper_may_end_at_any_step_as_well(node: FakeNode, step: str) -> None:
    ref = node.claim_shares("a", node.shared("mps-4"))
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
    node.assert_as_before()


LEFTOVERS = ("daemon stopped", "compute mode restored", "sharing forgotten")
"""The steps by which a prepare puts back what a share that has ended left on the GPU."""


@pytest.mark.parametrize("step", [*LEFTOVERS, "committed", "metadata written", "spec written"])
def test_a_whole_gpu_is_handed_out_without_what_an_ended_share_left(node: FakeNode, step: str) -> None:
    ref = node.claim_shares("a", node.shared("mps-4"))
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
    node.assert_as_before()


def test_a_daemon_that_started_before_it_was_noted_is_known_all_the_same(node: FakeNode) -> None:
    """The supervisor has it, the answer was on its way: the record was written before it was asked."""

    def die(_: object) -> None:
        node.mps.on_ensure = lambda _: None
        raise Crash("on its way")

    node.mps.on_ensure = die
    ref = node.claim_shares("a", node.shared("mps-4"))
    with pytest.raises(Crash):
        node.prepare(ref)
    node.restart()
    node.unprepare(ref)
    node.assert_as_before()
