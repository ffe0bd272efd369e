"""What may go wrong with claims for partitions: a clear error, and nothing leaks or is lost."""

import shutil

import pytest

from tests.gpus import ClaimBlocked, NodeIncomplete
from tests.kubeletplugin.fake_node import Crash, FakeNode
from tests.kubeletplugin.shown_node import ONE


def test_a_retry_that_failed_forgets_what_it_destroyed(node: FakeNode) -> None:
    """Else it would take what somebody else makes there afterwards for its own."""
    ref = node.claim_devices("train", node.part())
    node.crash_after = "made"
    with pytest.raises(Crash):
        node.prepare(ref)
    node.restart()
    node.on_step = lambda step: (
        shutil.rmtree(node.driver_root / "dev/nvidia-caps") if step == "begun" else None
    )
    with pytest.raises(NodeIncomplete):
        node.prepare(ref)
    assert node.instances() == ()

    theirs = node.cut_by_hand(ONE, 6, 1)
    with pytest.raises(ClaimBlocked, match="did not make"):
        node.prepare(ref)
    node.unprepare(ref)
    assert node.instances() == (theirs,)
