"""Shares of partitions that are made on request: the first makes it, whatever becomes of its maker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driver.errors import ClaimBlocked, ClaimRefused, DeviceHeld, NvmlError
from kubeletplugin.claims.journal.entry import NEWER_SCHEMA
from kubeletplugin.devices.kinds.partition.gpu_instances import InstanceInUse
from tests.kubeletplugin.cut_node import instances, mig_enabled, starts, uuid_of
from tests.kubeletplugin.fake_node import STEPS_OF_SHARED_MAKING as STEPS_OF_SHARING
from tests.kubeletplugin.fake_node import Crash, FakeNode
from tests.kubeletplugin.share_node import (
    assert_as_before,
    assert_holds_nothing,
)


@pytest.mark.parametrize("step", STEPS_OF_SHARING)
@pytest.mark.parametrize("first_to_leave", [0, 1])
def test_a_partition_is_shared_whatever_became_of_its_maker(
    node: FakeNode, step: str, first_to_leave: int
) -> None:
    device = f"{node.partition(0, '3g.40gb', 4)}-mps-2"
    refs = [node.claim_shares(name, device) for name in "ab"]
    node.crash_after = step
    with pytest.raises(Crash):
        node.prepare(refs[0])
    node.restart()
    node.prepare(refs[1])
    node.prepare(refs[0])
    assert starts(node) == [4]
    node.unprepare(refs[first_to_leave])
    assert (starts(node), list(node.mps.running)) == ([4], [device.removesuffix("-mps-2")])
    node.unprepare(refs[1 - first_to_leave])
    assert starts(node) == []
    assert_as_before(node)


@pytest.mark.parametrize("step", STEPS_OF_SHARING)
def test_what_its_maker_has_not_begun_goes_with_the_one_who_made_it(node: FakeNode, step: str) -> None:
    device = f"{node.partition(0, '3g.40gb', 4)}-mps-2"
    refs = [node.claim_shares(name, device) for name in "ab"]
    node.crash_after = step
    with pytest.raises(Crash):
        node.prepare(refs[0])
    node.restart()
    node.prepare(refs[1])
    for ref in reversed(refs):
        node.unprepare(ref)
    assert starts(node) == []
    assert_as_before(node)
    assert not mig_enabled(node)


def test_a_partition_that_a_lost_claim_shares_stays_and_nobody_else_gets_a_share(node: FakeNode) -> None:
    device = f"{node.partition(0, '3g.40gb', 4)}-ts-2"
    refs = [node.claim_shares(name, device) for name in "ab"]
    for ref in refs:
        node.prepare(ref)
    made = instances(node)
    (node.boot_files / "journal" / f"{refs[0].uid}.json").write_text("{")
    node.restart()
    with pytest.raises(DeviceHeld):
        node.prepare(node.claim_shares("c", device))
    for ref in reversed(refs):
        node.unprepare(ref)
        assert instances(node) == made


def test_a_partition_that_is_being_destroyed_is_waited_for_and_made_anew(node: FakeNode) -> None:
    device = f"{node.partition(0, '3g.40gb', 4)}-mps-2"
    refs = [node.claim_shares(name, device) for name in "ab"]
    node.prepare(refs[0])
    node.machine.set_processes(uuid_of(node, refs[0]), (4242,))
    assert isinstance(node.unprepare(refs[0]), InstanceInUse)
    assert node.mps.running == {}, "the daemon would be in the way itself"
    with pytest.raises(ClaimBlocked):
        node.prepare(refs[1])
    assert_holds_nothing(node, refs[1])
    node.machine.set_processes(uuid_of(node, refs[0]), ())
    assert node.reconciler.finish_releases() == (refs[0].uid,)
    node.prepare(refs[1])
    assert starts(node) == [4]


def test_a_partition_that_is_lost_under_its_shares_is_made_again(node: FakeNode) -> None:
    device = f"{node.partition(0, '3g.40gb', 4)}-mps-2"
    refs = [node.claim_shares(name, device) for name in "ab"]
    for ref in refs:
        node.prepare(ref)
    node.machine.reset(node.gpus[0])
    for ref in refs:
        assert node.prepare(ref)
    assert starts(node) == [4]
    for ref in refs:
        node.unprepare(ref)
    assert starts(node) == []
    assert_as_before(node)


def test_a_partition_that_fails_to_be_made_is_shared_by_nobody(node: FakeNode) -> None:
    device = f"{node.partition(0, '3g.40gb', 4)}-mps-2"
    node.machine.fail("create_compute_instance", times=1)
    ref = node.claim_shares("a", device)
    with pytest.raises(NvmlError):
        node.prepare(ref)
    assert_holds_nothing(node, ref)
    assert starts(node) == []
    assert_as_before(node)
    node.prepare(ref)


def test_a_partition_whose_daemon_cannot_start_is_destroyed_again(node: FakeNode) -> None:
    node.mps.failures = [ClaimRefused("no", "")]
    ref = node.claim_shares("a", f"{node.partition(0, '3g.40gb', 4)}-mps-2")
    with pytest.raises(ClaimRefused):
        node.prepare(ref)
    assert_holds_nothing(node, ref)
    assert starts(node) == []
    assert_as_before(node)


def test_a_share_whose_partition_has_a_share_of_a_newer_version_waits_for_that_one(node: FakeNode) -> None:
    device = f"{node.partition(0, '3g.40gb', 4)}-mps-2"
    ours, theirs = (node.claim_shares(name, device) for name in ("ours", "theirs"))
    node.prepare(theirs)
    entry = node.journal.get(theirs.uid)
    assert entry is not None
    (held,) = entry.devices
    newer = replace(held, kind=f"{NEWER_SCHEMA}2", record={}, share=None)
    node.journal.put(replace(entry, devices=(newer,)))

    with pytest.raises(DeviceHeld, match="can only be used by one claim at a time"):
        node.prepare(ours)

    assert starts(node) == [4]
