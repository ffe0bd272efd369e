"""A claim that has other devices than before gets these, and whoever comes late does nothing that is over."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kubeletplugin.claims.preparer import Preparer
from tests.gpus import gpu_device_name
from tests.kubeletplugin.fake_node import FakeNode
from tests.plugin import ClaimRef, Entry, NotReady, boottime_ns


def test_a_call_that_read_the_claim_too_early_takes_nothing_back(node: FakeNode) -> None:
    """While it waits for the claim's lock, a later call prepares what the claim has by then."""
    ref = node.claim("train", 1)
    early = node.call(boottime_ns())
    stored = node.api["team", "train"]

    def meanwhile() -> None:
        node.before_get = lambda: None
        node.claim("train", 2, uid=ref.uid)
        node.prepare(ref)
        node.api["team", "train"] = stored

    node.before_get = meanwhile

    assert [one.device for one in node.prepare(ref, early)] == [gpu_device_name(node.gpus[2])]


Acts = Callable[[Preparer, Entry], object]

ACTS: dict[str, Acts] = {"restore": Preparer.restore, "renew": Preparer.renew, "forget": Preparer.forget}


def outdated(node: FakeNode, ref: ClaimRef) -> Entry:
    """The entry of a claim that was prepared with an older NVIDIA driver, and whose spec is lost."""
    node.prepare(ref)
    node.spec_path(ref).unlink()
    node.journal.put(replace(node.entry(ref), spec_sha256="0" * 64))
    return node.entry(ref)


@pytest.mark.parametrize("name", ACTS)
@pytest.mark.parametrize("comes_back", [False, True])
def test_a_claim_that_was_released_or_prepared_anew_meanwhile_stays_as_it_is_now(
    node: FakeNode, name: str, *, comes_back: bool
) -> None:
    ref = node.claim("train", 1)
    old = outdated(node, ref)
    node.unprepare(ref)
    if comes_back:
        node.prepare(ref)
    now, spec = node.entry(ref), node.spec_path(ref)
    before = spec.stat().st_ino if comes_back else None

    assert not ACTS[name](node.preparer, old)

    assert node.entry(ref) == now
    assert now.state == ("prepared" if comes_back else "released")
    assert (spec.stat().st_ino if spec.exists() else None) == before


def test_a_tombstone_stays_when_its_claim_came_back_or_ended_again_meanwhile(node: FakeNode) -> None:
    ref = node.prepared("train", 1)
    node.unprepare(ref)
    tomb = node.entry(ref)
    node.prepare(ref)
    node.preparer.forget(tomb)
    assert node.entry(ref).state == "prepared"

    node.unprepare(ref)
    node.preparer.forget(tomb)
    assert node.entry(ref).changed_ns > tomb.changed_ns
    node.preparer.forget(node.entry(ref))
    assert node.journal.get(ref.uid) is None


def test_a_call_does_not_work_on_gpus_whose_locks_it_does_not_hold(node: FakeNode) -> None:
    """Another call prepared the claim while this one asked the API, which has other devices of it by now."""
    ref = node.claim_shares("train", node.shared("mps-4", 0))

    def prepared_by_another_call() -> None:
        node.before_get = lambda: None
        node.prepare(ref)
        node.claim_shares("train", node.shared("mps-4", 1), uid=ref.uid)
        node.mps.running.clear()

    node.before_get = prepared_by_another_call
    with pytest.raises(NotReady, match="was given other devices during this call"):
        node.prepare(ref)

    assert not node.mps.running
    node.prepare(ref)
    assert node.mps.running
