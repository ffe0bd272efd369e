"""A newer version has prepared a device of a kind that this one does not know: nobody touches it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driver.errors import ClaimBlocked, DeviceHeld
from kubeletplugin.journal.entry import Entry
from kubeletplugin.wire.claim_call import ClaimRef
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.share_node import mode, shared


def prepared_by_a_newer_version(node: FakeNode, ref: ClaimRef) -> Entry:
    """What the journal has of a claim whose device is of a kind that is not known here."""
    node.prepare(ref)
    entry = node.journal.get(ref.uid)
    assert entry is not None
    future = tuple(
        replace(held, kind="of-the-future", record={"brick": held.device}) for held in entry.devices
    )
    node.journal.put(replace(entry, devices=future))
    node.restart()
    kept = node.journal.get(ref.uid)
    assert kept is not None
    assert kept.devices == future
    return kept


def test_it_is_let_go_by_the_version_that_knows_it_alone(node: FakeNode) -> None:
    ref = node.claim("new", 0)
    before = prepared_by_a_newer_version(node, ref)

    with pytest.raises(ClaimBlocked, match="of kind of-the-future, which this version of the driver"):
        node.unprepare(ref)

    assert node.journal.get(ref.uid) == before
    assert node.spec_path(ref).exists(), "its pod may be starting a container"


def test_it_is_not_answered_for_without_knowing_it(node: FakeNode) -> None:
    ref = node.claim("new", 0)
    before = prepared_by_a_newer_version(node, ref)
    with pytest.raises(ClaimBlocked, match="of-the-future"):
        node.prepare(ref)
    assert node.journal.get(ref.uid) == before


def test_its_gpu_is_nobody_elses_and_other_gpus_are_handed_out(node: FakeNode) -> None:
    prepared_by_a_newer_version(node, node.claim("new", 0))
    with pytest.raises(DeviceHeld, match="is still held by another claim"):
        node.prepare(node.claim("whole", 0))
    with pytest.raises(DeviceHeld):
        node.prepare(node.claim_devices("part", node.partition(0, "1g.10gb", 6)))
    assert node.prepare(node.claim("other", 1))


def test_those_who_look_after_all_claims_pass_it_by(node: FakeNode) -> None:
    ref = node.claim_shares("new", shared(node, "mps-4"))
    before = prepared_by_a_newer_version(node, ref)
    running = dict(node.mps.running)

    node.keeper.run_once()
    node.health.run_once()
    node.api.clear()
    assert node.reconciler.run_once() == ()

    assert node.journal.get(ref.uid) == before
    assert (node.mps.running, mode(node)) == (running, "exclusive-process")
    assert node.watch.state().held == (before.devices[0].device,)
