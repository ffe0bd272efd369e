"""What may go wrong with claims for partitions: a clear error, and nothing leaks or is lost."""

import shutil

import pytest

from tests.gpus import ClaimBlocked, NodeIncomplete
from tests.kubeletplugin.fake_node import Crash, FakeNode
from tests.kubeletplugin.shown_node import ONE
from tests.plugin import InstanceInUse


def test_one_partition_that_stays_does_not_keep_the_others_of_its_claim(node: FakeNode) -> None:
    ref = node.prepared_devices("two", node.part(), node.part(6, 1))
    node.machine.set_processes(node.partition_uuid(ref), (4242,))
    assert isinstance(node.unprepare(ref), InstanceInUse)
    assert (node.starts(0), node.instances(1)) == ([6], ())


@pytest.mark.parametrize("how", ["lost", "without its library"])
def test_a_partition_is_known_until_its_gpu_was_seen_again_and_keeps_no_other(
    node: FakeNode, how: str
) -> None:
    node.driver_generation = "1"
    ref = node.claim_devices("train", node.part())
    other = node.claim_devices("other", node.part(6, 1))
    node.prepare(ref)
    node.prepare(other)
    if how == "lost":
        node.machine.lose(node.gpus[0])
        assert node.unprepare(other) is None
        assert node.instances(1) == ()
    else:
        node.machine.driver_gone()  # and the module stays

    assert node.unprepare(ref) is not None
    assert not node.spec_path(ref).exists()
    node.machine.driver_back()
    node.machine.restore(node.gpus[0])

    assert ref.uid in node.reconciler.finish_releases()
    assert node.instances() == ()
    assert not list(node.watch.foreign(node.discovery.snapshot(), ()))


def test_a_lost_claim_does_not_get_its_partition_again(node: FakeNode) -> None:
    ref = node.prepared_devices("train", node.part())
    (made,) = node.instances()
    node.entry_file(ref).write_text("{")
    node.restart()

    with pytest.raises(ClaimBlocked, match="which this driver did not make"):
        node.prepare(ref)
    assert node.instances() == (made,)
    assert node.spec_path(ref).exists(), "its pod may run"


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


def test_what_was_made_for_an_earlier_allocation_goes_before_the_next_is_prepared(node: FakeNode) -> None:
    """The claim was let go of and allocated anew, while a process still held its first partition."""
    ref = node.prepared_devices("shared", node.part())
    uuid = node.partition_uuid(ref)
    node.machine.set_processes(uuid, (4242,))
    assert isinstance(node.unprepare(ref), InstanceInUse)
    node.claim_devices("shared", node.part(5, 1), uid=ref.uid)
    with pytest.raises(InstanceInUse):
        node.prepare(ref)
    assert (node.starts(0), node.starts(1)) == ([6], [])

    node.machine.set_processes(uuid, ())
    assert len(node.prepare(ref)) == 1
    assert (node.starts(0), node.starts(1)) == ([], [5])
    node.unprepare(ref)
    assert node.starts(1) == []
