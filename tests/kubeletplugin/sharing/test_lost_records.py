"""Records of shares are lost or unreadable: a claim that runs keeps its GPU, and nothing stays behind."""

from __future__ import annotations

import pytest

from driver.errors import ClaimRefused, DeviceHeld
from kubeletplugin.kubelet.wire.claim_call import ClaimRef
from kubeletplugin.kubelet.wire.mps_daemon import MpsDaemon
from tests.kubeletplugin.cut_node import handle
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.share_node import (
    H100_MIB,
    assert_as_before,
    entry_of,
    limits,
    mode,
    mps,
    read_anew,
    recorded,
    share_of,
    shared,
    slicing,
    uuid,
    whole,
)


def claimed(node: FakeNode, name: str = "a", form: str = "mps-4", gpu: int = 0) -> ClaimRef:
    return node.claim_shares(name, shared(node, form, gpu))


def test_a_record_that_cannot_be_read_is_made_good_with_the_next_share(node: FakeNode) -> None:
    ref, other = claimed(node, "a"), claimed(node, "b")
    node.prepare(ref)
    (node.boot_files / "sharing" / f"{whole(node)}.json").write_text("{")
    read_anew(node)
    node.prepare(other)
    assert (node.mps.started, mode(node)) == (1, "exclusive-process")
    for one in (ref, other):
        node.unprepare(one)
    assert_as_before(node)


def test_gpus_of_a_record_that_cannot_be_read_are_all_put_back(node: FakeNode) -> None:
    ref = node.claim("own", 0, 1, config=mps())
    node.prepare(ref)
    (node.boot_files / "sharing" / f"{whole(node)}.json").write_text("{")
    read_anew(node)
    node.sharing_reconciler.run_once()
    assert (node.mps.started, mode(node, 0), mode(node, 1)) == (1, "exclusive-process", "exclusive-process")
    node.unprepare(ref)
    assert_as_before(node)


def test_gpus_of_a_record_that_cannot_be_read_are_all_put_back_when_the_claim_ends_first(
    node: FakeNode,
) -> None:
    ref = node.claim("own", 0, 1, config=mps())
    node.prepare(ref)
    (node.boot_files / "sharing" / f"{whole(node)}.json").write_text("{")
    read_anew(node)
    node.unprepare(ref)
    assert_as_before(node)


def test_a_record_that_cannot_be_read_is_put_back_though_the_supervisor_is_silent(node: FakeNode) -> None:
    """Nobody knows whether there ever was a daemon: where there was one, the keeper ends it later."""
    handle(node).set_compute_mode("exclusive-process")
    node.mps.running[whole(node)] = MpsDaemon(whole(node), (uuid(node),))
    (node.boot_files / "sharing" / f"{whole(node)}.json").write_text("{")
    read_anew(node)
    node.mps.silent = True
    node.prepare(node.claim("whole", 0))
    assert (mode(node), recorded(node)) == ("default", [])
    node.mps.silent = False
    node.mps.note_use()
    node.sharing_reconciler.follow()
    node.sharing_reconciler.run_once()
    assert_as_before(node)


def test_a_lost_claim_keeps_its_gpu_as_it_is(node: FakeNode) -> None:
    ref, other = claimed(node, "a"), claimed(node, "b")
    node.prepare(ref)
    (node.boot_files / "journal" / f"{ref.uid}.json").write_text("{")
    node.restart()
    assert entry_of(node, ref).state == "lost"
    node.sharing_reconciler.run_once()
    with pytest.raises(DeviceHeld):
        node.prepare(other)
    assert (node.mps.started, limits(node), mode(node)) == (1, (25, (H100_MIB // 4,)), "exclusive-process")
    with pytest.raises(DeviceHeld):
        node.prepare(node.claim("whole", 0))
    node.unprepare(ref)
    node.sharing_reconciler.run_once()
    assert_as_before(node)


def test_a_lost_claim_of_a_share_is_prepared_again_as_it_was(node: FakeNode) -> None:
    ref = claimed(node)
    before = node.prepare(ref)
    (node.boot_files / "journal" / f"{ref.uid}.json").write_text("{")
    node.restart()
    node.mps.failures = [ClaimRefused("no", "")]
    with pytest.raises(ClaimRefused):
        node.prepare(ref)
    assert (mode(node), list(node.mps.running)) == ("exclusive-process", [whole(node)]), "its pod may run"
    assert node.prepare(ref) == before
    assert (node.mps.started, share_of(node, ref).shares) == (1, 1)
    node.unprepare(ref)
    assert_as_before(node)


def test_after_a_reboot_shares_are_made_again(node: FakeNode) -> None:
    refs = [claimed(node, "a"), claimed(node, "b"), node.claim("own", 1, config=slicing("Long"))]
    for ref in refs:
        node.prepare(ref)
    node.reboot()
    node.sharing_reconciler.run_once()
    assert_as_before(node)
    node.prepare(refs[0])
    assert (limits(node), mode(node)) == ((25, (H100_MIB // 4,)), "exclusive-process")
    node.unprepare(refs[0])
    for ref in refs[1:]:
        node.unprepare(ref)
    assert_as_before(node)
