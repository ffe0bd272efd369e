"""What a claim's containers are held to follows from its share, its class and its configuration."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.claims.allocation import AllocatedDevice
from driver.claims.opaque import Burst, GpuConfig, MemoryDivision
from driver.devices.memory_limits import SMALLEST_LIMIT_BYTES
from driver.devices.sharing import Share, SharedForm, shared_suffix
from driver.errors import ClaimBlocked, ClaimRefused, DeviceHeld
from driver.kinds.registry import KINDS
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, MemoryRecord
from kubeletplugin.kubelet.wire.planned import SharingRequest
from kubeletplugin.sharing.conflicts import refuse_conflicts, refuse_overpromised
from kubeletplugin.sharing.share_amounts import Shareable, memory_record, share_records, sharing_request

GPU, PCI = "gpu-0000-01-00-0", "0000:01:00.0"
MIB, GIB = 1 << 20, 1 << 30
L4 = 23034 * MIB
"""The memory of an L4, which no number of shares divides into whole GiB."""


def shareable(
    form: str,
    taken: Share,
    division: MemoryDivision | None = None,
    burst: Burst | None = None,
    total: int = L4,
    published: int | None = None,
    *,
    reserved: int = 0,
    limits: bool = True,
) -> Shareable:
    """A share of a GPU, with what its claim and its class say of memory."""
    name = KINDS.parse(f"{GPU}-{form}")
    assert name is not None
    assert name.shared is not None
    sharing = SharingRequest(name.shared.strategy, name.shared, taken, memory=division, burst=burst)
    return Shareable(
        f"{GPU}-{form}", "r", sharing, "GPU-1", total, total - reserved, published, limits=limits
    )


def whole(division: MemoryDivision | None, burst: Burst | None = None, *, limits: bool = True) -> Shareable:
    """A GPU that its claim shares among its own pods."""
    sharing = SharingRequest("TimeSlicing", memory=division, burst=burst)
    return Shareable(GPU, "r", sharing, "GPU-1", L4, L4, None, limits=limits)


def held_to(one: Shareable) -> MemoryRecord | None:
    (share,) = share_records([one])
    return memory_record(one, share)


@pytest.mark.parametrize(
    ("form", "taken", "guaranteed"),
    [
        ("ts-mem", Share(None, 10 * GIB), 10 * GIB),
        ("mps-mem", Share(None, 10 * GIB), 10 * GIB),
        ("ts-4", Share(1), 5758 * MIB),
        ("ts-4", Share(4), 23034 * MIB),
        ("mps-4", Share(1), 5758 * MIB),
        ("ts-4-mem", Share(1, 3 * GIB), 3 * GIB),
        ("ts-frac-10", Share(3), 6910 * MIB),
        ("ts-frac-mem", Share(None, 10 * GIB), 10 * GIB),
    ],
)
def test_a_share_is_what_is_guaranteed_and_the_most(form: str, taken: Share, guaranteed: int) -> None:
    one = shareable(form, taken, published=L4)
    assert held_to(one) == MemoryRecord(guaranteed, guaranteed)


@pytest.mark.parametrize(
    ("form", "taken", "burst", "guaranteed", "most"),
    [
        ("ts-4", Share(1), None, 5641 * MIB, 5641 * MIB),
        ("ts-4", Share(4), None, 22564 * MIB, 22564 * MIB),
        ("ts-mem", Share(None, 20 * GIB), Burst(to_free=True), 20 * GIB, 22564 * MIB),
        ("ts-mem", Share(None, 20 * GIB), Burst(Fraction(2)), 20 * GIB, 22564 * MIB),
        ("ts-mem", Share(None, L4), Burst(to_free=True), L4, L4),
    ],
)
def test_what_the_nvidia_driver_keeps_for_itself_is_nobodys(
    form: str, taken: Share, burst: Burst | None, guaranteed: int, most: int
) -> None:
    found = held_to(shareable(form, taken, None, burst, reserved=470 * MIB))
    assert found is not None
    assert (found.guaranteed_bytes, found.most_bytes) == (guaranteed, most)


def test_where_the_driver_holds_nobody_a_share_is_held_to_nothing() -> None:
    assert held_to(shareable("ts-4", Share(1), limits=False)) is None


@pytest.mark.parametrize(
    ("division", "burst"),
    [
        (MemoryDivision(), None),
        (MemoryDivision((("main", GIB),)), None),
        (None, Burst(Fraction(2))),
    ],
)
def test_what_is_said_of_memory_is_not_passed_over_where_nobody_is_held_to_it(
    division: MemoryDivision | None, burst: Burst | None
) -> None:
    with pytest.raises(
        ClaimBlocked, match="driver does not enforce memory limits on it: use a class that requires"
    ):
        held_to(shareable("ts-4", Share(1), division, burst, limits=False))


def test_a_gpu_that_is_not_offered_with_limits_cannot_be_divided() -> None:
    with pytest.raises(ClaimBlocked, match="does not enforce memory limits"):
        held_to(whole(MemoryDivision(), limits=False))


@pytest.mark.parametrize(
    ("burst", "most"),
    [
        (Burst(Fraction(2)), 10 * GIB),
        (Burst(Fraction(1)), 5 * GIB),
        (Burst(Fraction("1.1")), 11 * GIB // 2),
        (Burst(Fraction(1000)), L4),
        (Burst(to_free=True), L4),
    ],
)
def test_a_burst_goes_beyond_the_guarantee_within_the_gpu_and_never_into_what_others_are_guaranteed(
    burst: Burst, most: int
) -> None:
    assert held_to(shareable("ts-mem", Share(None, 5 * GIB), None, burst)) == MemoryRecord(
        5 * GIB, most, to_free=True
    )


def test_containers_that_are_named_have_their_parts_and_each_other_has_a_limit() -> None:
    division = MemoryDivision((("main", 6 * GIB),), 2 * GIB)
    assert held_to(shareable("ts-mem", Share(None, 10 * GIB), division)) == MemoryRecord(
        10 * GIB, 10 * GIB, each_bytes=2 * GIB, parts={"main": 6 * GIB}
    )


@pytest.mark.parametrize(
    ("division", "words"),
    [
        (MemoryDivision((("a", 6 * GIB), ("b", 5 * GIB))), "11264 MiB in total, but the claim has"),
        (MemoryDivision((("a", 11 * GIB),)), "11264 MiB in total, but the claim has 10240 MiB"),
        (MemoryDivision(each_bytes=11 * GIB), "gives each of its containers 11264 MiB, but the claim has"),
        (
            MemoryDivision((("a", 8 * GIB),), 3 * GIB),
            "3072 MiB in addition to parts of 8192 MiB, but the claim has",
        ),
    ],
)
@pytest.mark.parametrize("burst", [None, Burst(to_free=True)])
def test_what_is_more_than_the_share_is_refused_for_good_whatever_burst_is_allowed(
    division: MemoryDivision, words: str, burst: Burst | None
) -> None:
    with pytest.raises(ClaimRefused, match=words):
        held_to(shareable("ts-mem", Share(None, 10 * GIB), division, burst))


@pytest.mark.parametrize(
    ("form", "taken"), [("ts-mem", Share(None, 511 * MIB)), ("ts-48", Share(1)), ("mps-48", Share(1))]
)
def test_a_share_in_which_nothing_starts_is_refused_for_good(form: str, taken: Share) -> None:
    with pytest.raises(ClaimRefused, match="no program starts with less than 512 MiB"):
        held_to(shareable(form, taken))


def test_a_share_of_more_than_the_gpu_is_refused() -> None:
    with pytest.raises(ClaimRefused, match="which has"):
        held_to(shareable("ts-mem", Share(None, 24 * GIB)))


@pytest.mark.parametrize("division", [MemoryDivision(), MemoryDivision(burst=Burst(to_free=True))])
def test_a_gpu_that_a_claim_shares_among_its_own_pods_is_divided_where_the_configuration_says_so(
    division: MemoryDivision,
) -> None:
    assert held_to(whole(division, Burst(to_free=True))) == MemoryRecord(L4, L4)
    assert held_to(whole(None)) is None


def test_the_parts_of_a_whole_gpu_are_within_it() -> None:
    parts = MemoryDivision((("a", 12 * GIB),), 10 * GIB)
    assert held_to(whole(parts)) == MemoryRecord(L4, L4, each_bytes=10 * GIB, parts={"a": 12 * GIB})
    with pytest.raises(ClaimRefused, match="in total, but the claim has 23034 MiB"):
        held_to(whole(MemoryDivision((("a", 23 * GIB),))))


def test_who_has_all_of_a_fractional_device_divides_it_where_it_is_shared() -> None:
    division = MemoryDivision(each_bytes=4 * GIB)
    all_of_it = shareable("ts-frac-10", Share(10), division)
    with pytest.raises(ClaimRefused, match="does not share it among containers: add"):
        held_to(all_of_it)
    assert all_of_it.sharing is not None
    asked = replace(all_of_it, sharing=replace(all_of_it.sharing, has_strategy=True))
    assert held_to(asked) == MemoryRecord(L4, L4, each_bytes=4 * GIB)


def test_who_has_all_of_a_fractional_device_needs_no_limit_and_no_burst() -> None:
    assert held_to(shareable("ts-frac-10", Share(10), None, Burst(to_free=True))) is None
    burst = MemoryDivision(burst=Burst(to_free=True))
    assert held_to(shareable("ts-frac-10", Share(10), burst, burst.burst)) is None


def sharing(
    config: GpuConfig | None, of_class: GpuConfig | None = None, form: str = "ts-4"
) -> SharingRequest | None:
    """What is made of the configurations of a GPU, or of a share of one."""
    device = f"{GPU}-{form}" if form else GPU
    name = KINDS.parse(device)
    assert name is not None
    consumed = (("shares", "1"),) if form else ()
    return sharing_request(AllocatedDevice("r", "p", device, "s", False, consumed), name, config, of_class)


def test_the_class_allows_the_burst_also_where_the_claim_has_the_last_word() -> None:
    of_class = GpuConfig(memory=MemoryDivision(each_bytes=GIB, burst=Burst(Fraction(2))))
    of_claim = GpuConfig(memory=MemoryDivision((("main", GIB),)))
    for config, division in ((of_claim, of_claim.memory), (of_class, of_class.memory), (GpuConfig(), None)):
        found = sharing(config, of_class)
        assert found is not None
        assert found.memory == division
        assert found.burst == Burst(Fraction(2))
    found = sharing(of_claim)
    assert found is not None
    assert found.burst is None


def test_a_gpu_that_is_not_shared_cannot_be_divided() -> None:
    for division in (MemoryDivision(), MemoryDivision(each_bytes=GIB)):
        with pytest.raises(ClaimRefused, match="divides the memory of gpu-0000-01-00-0"):
            sharing(GpuConfig(memory=division), form="")
    assert sharing(GpuConfig(memory=MemoryDivision(burst=Burst(to_free=True))), form="") is None
    found = sharing(GpuConfig("TimeSlicing", memory=MemoryDivision()), form="")
    assert found == SharingRequest("TimeSlicing", memory=MemoryDivision())


def test_admin_access_is_held_to_nothing() -> None:
    name = KINDS.parse(f"{GPU}-ts-4")
    assert name is not None
    config = GpuConfig(memory=MemoryDivision(each_bytes=GIB))
    assert sharing_request(AllocatedDevice("r", "p", f"{GPU}-ts-4", None, True), name, config, config) is None


def held(one: Shareable) -> HeldDevice:
    """What a claim would hold of it."""
    (share,) = share_records([one])
    return HeldDevice(
        "r", "p", one.device, PCI, "GPU-1", "cdi", kind="whole", share=share, memory=memory_record(one, share)
    )


def entry(uid: str, *devices: HeldDevice) -> Entry:
    return Entry(uid, "team", uid, "prepared", 1, devices)


FORMS = st.one_of(
    st.builds(SharedForm, st.sampled_from(["TimeSlicing", "MPS"]), st.integers(2, 48)),
    st.builds(SharedForm, st.sampled_from(["TimeSlicing", "MPS"]), st.none(), st.just(True)),
    st.builds(SharedForm, st.sampled_from(["TimeSlicing", "MPS"]), st.integers(2, 8), st.just(True)),
)


@given(FORMS, st.integers(8 * 1024, 200 * 1024), st.integers(0, MIB - 1), st.data())
def test_what_claims_are_guaranteed_is_never_more_than_the_gpu_together(
    form: SharedForm, mib: int, odd_bytes: int, data: st.DataObject
) -> None:
    """Claims come and go in any order, each with any burst; more than once the GPU has another size."""
    holders: dict[str, Entry] = {}
    total = mib * MIB + odd_bytes
    for number in range(data.draw(st.integers(1, 40))):
        leaves = data.draw(st.booleans())
        if holders and leaves:
            del holders[data.draw(st.sampled_from(sorted(holders)))]
        taken = Share(
            None if form.shares is None else data.draw(st.integers(1, form.shares)),
            data.draw(st.integers(1, mib)) * MIB if form.memory else None,
        )
        burst = data.draw(st.sampled_from([None, Burst(Fraction(3)), Burst(to_free=True)]))
        limits = data.draw(st.integers(0, 3)) > 0
        now = total * data.draw(st.sampled_from([100, 100, 100, 93])) // 100  # with ECC turned on
        one = shareable(shared_suffix(form)[1:], taken, None, burst if limits else None, now, limits=limits)
        try:
            candidate = held(one)
            refuse_conflicts(f"c-{number}", [candidate], [now], holders.values())
            refuse_overpromised(f"c-{number}", [candidate], [now], holders.values())
        except (ClaimRefused, DeviceHeld):
            continue
        holders[f"c-{number}"] = entry(f"c-{number}", candidate)
        memories = [device.memory for other in holders.values() for device in other.devices]
        guaranteed = sum(memory.guaranteed_bytes for memory in memories if memory is not None)
        if candidate.memory is not None:
            assert guaranteed <= now
            assert SMALLEST_LIMIT_BYTES <= candidate.memory.guaranteed_bytes <= candidate.memory.most_bytes
            assert candidate.memory.most_bytes <= now


def test_guarantees_of_other_devices_of_the_gpu_count_and_those_of_another_gpu_do_not() -> None:
    mine = held(shareable("ts-mem", Share(None, 10 * GIB)))
    others = held(shareable("ts-4", Share(3)))
    with pytest.raises(DeviceHeld, match="would be guaranteed") as caught:
        refuse_overpromised("a", [mine], [L4], [entry("b", others)])
    assert "team/b" in caught.value.logged
    assert "team/b" not in str(caught.value)
    refuse_overpromised("a", [mine], [L4], [entry("a", others)])
    refuse_overpromised("a", [mine], [L4], [entry("b", replace(others, pci="0000:02:00.0"))])


def test_shares_that_nobody_is_held_to_count_with_what_they_stand_for() -> None:
    mine = held(shareable("ts-4", Share(2)))
    unheld = held(shareable("ts-4", Share(3), limits=False))
    assert unheld.memory is None
    with pytest.raises(DeviceHeld, match="would be guaranteed"):
        refuse_overpromised("a", [mine], [L4], [entry("b", unheld)])


def test_two_shares_of_one_claim_count_both() -> None:
    mine = held(shareable("ts-mem", Share(None, 12 * GIB)))
    with pytest.raises(DeviceHeld, match="would be guaranteed"):
        refuse_overpromised("a", [mine, mine], [L4, L4], [])
