"""What a claim's containers are held to follows from its share."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.devices.memory_limits import SMALLEST_LIMIT_BYTES
from driver.devices.sharing import Share, SharedForm, shared_suffix
from driver.errors import ClaimRefused, DeviceHeld
from driver.kinds.registry import KINDS
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.kubelet.wire.planned import SharingRequest
from kubeletplugin.sharing.shares import (
    Shareable,
    memory_limit_bytes,
    refuse_conflicts,
    refuse_overpromised,
    share_records,
)

GPU, PCI = "gpu-0000-01-00-0", "0000:01:00.0"
MIB, GIB = 1 << 20, 1 << 30
L4 = 23034 * MIB
"""The memory of an L4, which no number of shares divides into whole GiB."""


def shareable(
    form: str,
    taken: Share,
    total: int = L4,
    published: int | None = None,
    *,
    reserved: int = 0,
    limits: bool = True,
) -> Shareable:
    """A share of a GPU."""
    name = KINDS.parse(f"{GPU}-{form}")
    assert name is not None
    assert name.shared is not None
    sharing = SharingRequest(name.shared.strategy, name.shared, taken)
    return Shareable(
        f"{GPU}-{form}", "r", sharing, "GPU-1", total, total - reserved, published, limits=limits
    )


def held_to(one: Shareable) -> int | None:
    (share,) = share_records([one])
    return memory_limit_bytes(one, share)


@pytest.mark.parametrize(
    ("form", "taken", "limit_bytes"),
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
def test_a_share_is_the_limit(form: str, taken: Share, limit_bytes: int) -> None:
    assert held_to(shareable(form, taken, published=L4)) == limit_bytes


@pytest.mark.parametrize(("shares", "limit_bytes"), [(1, 5641 * MIB), (4, 22564 * MIB)])
def test_what_the_nvidia_driver_keeps_for_itself_is_nobodys(shares: int, limit_bytes: int) -> None:
    assert held_to(shareable("ts-4", Share(shares), reserved=470 * MIB)) == limit_bytes


def test_who_has_a_gpu_alone_is_held_to_nothing() -> None:
    own_pods = Shareable(GPU, "r", SharingRequest("TimeSlicing"), "GPU-1", L4, L4, None, limits=True)
    all_of_it = shareable("ts-frac-10", Share(10))
    assert all_of_it.sharing is not None
    shared = replace(all_of_it, sharing=replace(all_of_it.sharing, has_strategy=True))
    assert [held_to(one) for one in (own_pods, all_of_it, shared)] == [None, None, None]


def test_where_the_driver_holds_nobody_a_share_is_held_to_nothing() -> None:
    assert held_to(shareable("ts-4", Share(1), limits=False)) is None


@pytest.mark.parametrize(
    ("form", "taken"), [("ts-mem", Share(None, 511 * MIB)), ("ts-48", Share(1)), ("mps-48", Share(1))]
)
def test_a_share_in_which_nothing_starts_is_refused_for_good(form: str, taken: Share) -> None:
    with pytest.raises(ClaimRefused, match="no program starts with less than 512 MiB"):
        held_to(shareable(form, taken))


def held(one: Shareable) -> HeldDevice:
    """What a claim would hold of it."""
    (share,) = share_records([one])
    return HeldDevice(
        *("r", "p", one.device, PCI, "GPU-1", "cdi"),
        kind="whole",
        share=share,
        memory_limit_bytes=memory_limit_bytes(one, share),
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
    """Claims come and go in any order, and more than once the GPU has another size."""
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
        limits = data.draw(st.integers(0, 3)) > 0
        now = total * data.draw(st.sampled_from([100, 100, 100, 93])) // 100  # with ECC turned on
        one = shareable(shared_suffix(form)[1:], taken, now, limits=limits)
        try:
            candidate = held(one)
            refuse_conflicts(f"c-{number}", [candidate], [now], holders.values())
            refuse_overpromised(f"c-{number}", [candidate], [now], holders.values())
        except (ClaimRefused, DeviceHeld):
            continue
        holders[f"c-{number}"] = entry(f"c-{number}", candidate)
        if candidate.memory_limit_bytes is not None:
            held_devices = (device for other in holders.values() for device in other.devices)
            assert sum(device.memory_limit_bytes or 0 for device in held_devices) <= now
            assert candidate.memory_limit_bytes >= SMALLEST_LIMIT_BYTES


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
    assert unheld.memory_limit_bytes is None
    with pytest.raises(DeviceHeld, match="would be guaranteed"):
        refuse_overpromised("a", [mine], [L4], [entry("b", unheld)])


def test_two_shares_of_one_claim_count_both() -> None:
    mine = held(shareable("ts-mem", Share(None, 12 * GIB)))
    with pytest.raises(DeviceHeld, match="would be guaranteed"):
        refuse_overpromised("a", [mine, mine], [L4, L4], [])
