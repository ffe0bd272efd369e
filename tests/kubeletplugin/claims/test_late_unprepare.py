"""An unprepare that waited too long harms no other pod."""

import pytest

from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.fake_roots import reinstall_driver
from tests.plugin import LateCall, boottime_ns


def test_a_call_from_before_the_claim_was_prepared_takes_nothing_from_the_pod_that_has_it(
    node: FakeNode,
) -> None:
    ref = node.claim("shared", 1)
    late = node.call(boottime_ns())
    node.prepare(ref)

    with pytest.raises(LateCall, match="was prepared while this call to unprepare it waited") as refused:
        node.unprepare(ref, late)

    assert refused.value.retryable
    assert node.spec_path(ref).exists()
    assert node.unprepare(ref) is None
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
