"""Shares that do not go together are refused, with the name of the claim that has to go first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.errors import DeviceHeld
from kubeletplugin.journal.entry import Entry, HeldDevice, ShareRecord
from kubeletplugin.sharing.conflicts import interval_of, refuse_conflicts
from kubeletplugin.wire.claim_call import ClaimRef
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.share_node import GIB, assert_as_before, shared, slicing, whole

GPU, PCI = "gpu-0000-01-00-0", "0000:01:00.0"


def held(form: str = "ts-4", *, shares: int = 1, memory: int = 0, interval: str = "") -> HeldDevice:
    record = ShareRecord(GPU, "TimeSlicing", shares, memory, interval)
    return HeldDevice("r", "p", f"{GPU}-{form}", PCI, "GPU-1", "cdi", "s", share=record)


def entry(uid: str, *devices: HeldDevice, rebuilt: bool = False) -> Entry:
    return Entry(uid, "team", f"claim-{uid}", "prepared", "boot", 0, devices, rebuilt=rebuilt)


def refused(wanted: list[HeldDevice], *others: Entry, memory: int = 0) -> str:
    """Why they do not go together, empty where they do."""
    try:
        refuse_conflicts("mine", wanted, [memory] * len(wanted), others)
    except DeviceHeld as error:
        return str(error)
    return ""


@given(st.lists(st.integers(1, 4), max_size=4), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_there_are_never_more_shares_than_the_device_has(others: list[int], wanted: list[int]) -> None:
    entries = [entry(str(number), held(shares=taken)) for number, taken in enumerate(others)]
    why = refused([held(shares=taken) for taken in wanted], *entries)
    assert bool(why) == (sum(others) + sum(wanted) > 4)


@given(st.lists(st.integers(1, 40), max_size=4), st.integers(1, 40))
def test_there_is_never_more_memory_than_the_device_has(others: list[int], wanted: int) -> None:
    entries = [
        entry(str(number), held("mps-mem", shares=0, memory=taken * GIB))
        for number, taken in enumerate(others)
    ]
    why = refused([held("mps-mem", shares=0, memory=wanted * GIB)], *entries, memory=80 * GIB)
    assert bool(why) == (sum(others) + wanted > 80)


def test_who_has_the_rest_is_named() -> None:
    why = refused([held(shares=2)], entry("b", held(shares=2)), entry("a", held()))
    assert "has 4 shares, and with those of claim team/claim-a (UID a), claim team/claim-b (UID b) 5" in why
    assert "(retryable)" in why


def test_the_claims_own_and_those_that_only_look_on_do_not_count() -> None:
    mine = entry("mine", held(shares=4))
    looking = entry("b", replace(held(), admin_access=True, share=None))
    lost = entry("c", replace(held(), share=None), rebuilt=True)
    assert refused([held(shares=4)], mine, looking, lost) == ""
    assert refused([replace(held(), admin_access=True, share=None)], entry("d", held(shares=4))) == ""


def test_shares_of_another_device_do_not_count() -> None:
    other = replace(held(shares=4), device="gpu-0000-02-00-0-ts-4")
    assert refused([held(shares=4)], entry("a", other)) == ""
    assert refused([held(shares=4), other], entry("a", held("ts-8", shares=8))) == ""


def test_who_has_all_of_a_fractional_device_is_alone() -> None:
    alone = replace(held("mps-frac-10"), share=None)
    part = held("mps-frac-10", shares=3)
    assert "claim team/claim-a (UID a) has it, too" in refused([part], entry("a", alone))
    assert "is for one claim alone, and claim team/claim-b" in refused([alone], entry("b", part))
    assert refused([alone]) == ""
    among_its_pods = held("mps-frac-10", shares=0)
    assert "claim team/claim-a (UID a) has it, too" in refused([part], entry("a", among_its_pods))


def test_a_gpu_has_one_time_slice_at_a_time() -> None:
    longer, plain = held(interval="Long"), held()
    for wanted, other, fine in (
        (longer, longer, True),
        (plain, longer, True),
        (longer, plain, False),
        (longer, held(interval="Short"), False),
        (held(interval="Default"), plain, True),
        (held(interval="Default"), longer, False),
        (plain, plain, True),
    ):
        why = refused([wanted], entry("a", other))
        assert (why == "") is fine, why
        assert fine or "claim team/claim-a (UID a)" in why
    assert "for this claim" in refused([longer, held(interval="Short")])


def test_the_time_slice_is_what_anybody_asked_for() -> None:
    records = [one.share for one in (held(), held(interval="Long"), held()) if one.share]
    assert interval_of(records) == "Long"
    assert interval_of(records[:1]) == interval_of(()) == "Default"


@pytest.mark.parametrize("first", ["whole", "mps-4", "ts-4", "mps-mem", "part", "own"])
@pytest.mark.parametrize("second", ["whole", "mps-4", "ts-4", "mps-mem", "part"])
def test_the_forms_of_one_gpu_exclude_each_other_until_the_first_has_left(
    node: FakeNode, first: str, second: str
) -> None:
    ref = claimed(node, "first", first)
    node.prepare(ref)
    other = claimed(node, "second", second)
    if first == second and first not in ("whole", "part"):
        node.prepare(other)
        return
    with pytest.raises(DeviceHeld, match=r"held by claim team/first \(UID"):
        node.prepare(other)
    assert node.journal.get(other.uid) is None
    node.unprepare(ref)
    node.prepare(other)
    node.unprepare(other)
    assert_as_before(node)


def claimed(node: FakeNode, name: str, form: str) -> ClaimRef:
    """A claim for the first GPU in one of its forms."""
    if form == "whole":
        return node.claim(name, 0)
    if form == "own":
        return node.claim(name, 0, config=slicing("Long"))
    if form == "part":
        return node.claim_devices(name, node.partition(0, "1g.10gb", 6))
    consumed = {"memory": "10Gi"} if form == "mps-mem" else None
    return node.claim_shares(name, shared(node, form), consumed=consumed)


def test_a_share_too_many_waits_for_one_that_leaves(node: FakeNode) -> None:
    refs = [node.claim_shares(f"c-{number}", shared(node, "mps-2")) for number in range(3)]
    for ref in refs[:2]:
        node.prepare(ref)
    with pytest.raises(DeviceHeld, match="has 2 shares"):
        node.prepare(refs[2])
    assert whole(node) in node.mps.running
    node.unprepare(refs[0])
    node.prepare(refs[2])


def test_memory_too_much_waits_for_some_that_leaves(node: FakeNode) -> None:
    device = shared(node, "mps-mem")
    refs = [node.claim_shares(f"c-{number}", device, consumed={"memory": "30Gi"}) for number in range(3)]
    for ref in refs[:2]:
        node.prepare(ref)
    with pytest.raises(DeviceHeld, match="bytes of memory"):
        node.prepare(refs[2])
    node.unprepare(refs[0])
    node.prepare(refs[2])


def test_another_time_slice_waits_for_the_one_that_is_set(node: FakeNode) -> None:
    ref = node.claim_shares("a", shared(node, "ts-4"), config=slicing("Short"))
    other = node.claim_shares("b", shared(node, "ts-4"), config=slicing("Long"))
    node.prepare(ref)
    with pytest.raises(DeviceHeld, match="which has Short for claim team/a"):
        node.prepare(other)
    node.unprepare(ref)
    node.prepare(other)
