"""An unprepare that waited too long, or that cannot take everything back, harms no other pod."""

from __future__ import annotations

import pytest

from kubeletplugin.claims.journal.entry import boottime_ns
from kubeletplugin.claims.preparer import LateCall
from kubeletplugin.devices.kinds.partition.gpu_instances import InstanceInUse
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.fake_roots import reinstall_driver


def test_a_call_from_before_the_claim_was_prepared_takes_nothing_from_the_pod_that_has_it(
    node: FakeNode,
) -> None:
    ref = node.claim("shared", 1)
    late = node.call(boottime_ns())
    node.prepare(ref)

    with pytest.raises(LateCall, match="was prepared while this call to unprepare it waited"):
        node.unprepare(ref, late)

    assert node.spec_path(ref).exists()
    node.unprepare(ref)
    assert not node.spec_path(ref).exists()


def test_a_spec_that_comes_back_meanwhile_makes_no_call_late(node: FakeNode) -> None:
    ref = node.claim("train", 1)
    node.prepare(ref)
    node.spec_path(ref).unlink()
    waiting = node.call(boottime_ns())
    node.reconciler.restore_specs()
    assert node.spec_path(ref).exists()

    node.unprepare(ref, waiting)

    assert not node.spec_path(ref).exists()


def test_a_spec_that_is_renewed_meanwhile_makes_no_call_late(node: FakeNode) -> None:
    """During a change of the NVIDIA driver pods that end got UnprepareFailed."""
    ref = node.claim("train", 1)
    node.prepare(ref)
    before = node.spec_path(ref).read_text()
    waiting = node.call(boottime_ns())
    node.machine.driver_back("575.51.03")
    reinstall_driver(node.driver_root, node.machine)
    node.reconciler.restore_specs()
    assert node.spec_path(ref).read_text() != before

    node.unprepare(ref, waiting)

    assert not node.spec_path(ref).exists()


def test_a_late_call_can_be_made_again(node: FakeNode) -> None:
    ref = node.claim("train", 1)
    late = node.call(boottime_ns())
    node.prepare(ref)

    with pytest.raises(LateCall) as refused:
        node.unprepare(ref, late)

    assert refused.value.retryable
    assert node.unprepare(ref) is None


def test_a_call_that_the_kubelet_gave_up_takes_nothing_back(node: FakeNode) -> None:
    ref = node.claim("train", 1)
    node.prepare(ref)

    with pytest.raises(LateCall, match="cancelled this call"):
        node.unprepare(ref, node.call(active=False))

    assert node.spec_path(ref).exists()


def test_a_call_that_came_while_the_plugin_started_ends_a_lost_claim(node: FakeNode) -> None:
    ref = node.claim("train", 1)
    node.prepare(ref)
    (node.boot_files / "journal" / f"{ref.uid}.json").unlink()
    early = node.call(boottime_ns())
    assert node.restart().lost == (ref.uid,)

    node.unprepare(ref, early)

    assert not node.spec_path(ref).exists()


def test_a_monitor_on_a_partition_does_not_keep_the_pod_from_ending(node: FakeNode) -> None:
    ref = node.claim_devices("train", node.partition(0, "1g.10gb", 6))
    node.prepare(ref)
    uuid = node.partition_uuid(ref)
    node.machine.set_processes(uuid, (4242,))

    first, again = node.unprepare(ref), node.unprepare(ref)

    assert isinstance(first, InstanceInUse)
    assert isinstance(again, InstanceInUse)
    node.restart()
    assert node.entry(ref).state == "releasing", "the place stays taken, also over a restart"
    node.machine.set_processes(uuid, ())
    assert node.reconciler.finish_releases() == (ref.uid,)
    assert node.unprepare(ref) is None
