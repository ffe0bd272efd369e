"""What a claim took of a shared device, what its containers are held to by that, and what is refused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.claims.allocation import AllocatedDevice
from driver.claims.opaque import MpsSettings
from driver.devices.memory_limits import SMALLEST_LIMIT_BYTES
from driver.devices.sharing import Share, shared_suffix
from driver.kinds.registry import KINDS
from kubeletplugin.kubelet.wire.planned import SharingRequest
from kubeletplugin.sharing.shares import (
    Shareable,
    memory_limit_bytes,
    needs_published_memory,
    refuse_conflicts,
    refuse_overpromised,
    share_records,
    sharing_request,
)
from tests.gpus import ClaimRefused, DeviceHeld, GpuConfig, MigDeviceConfig, SharedForm
from tests.plugin import Entry, HeldDevice, ShareRecord

GPU, OTHER = "gpu-0000-01-00-0", "gpu-0000-02-00-0"
MIB, GIB = 1 << 20, 1 << 30


def sharing(
    form: str,
    consumed: dict[str, str],
    config: GpuConfig | MigDeviceConfig | None = None,
    share_id: str | None = "s",
    *,
    admin: bool = False,
) -> SharingRequest | None:
    """What is made of a share of a GPU in this form."""
    device = f"{GPU}-{form}"
    name = KINDS.parse(device)
    assert name is not None
    return sharing_request(
        AllocatedDevice("r", "p", device, share_id, admin, tuple(consumed.items())), name, config
    )


@pytest.mark.parametrize(
    ("form", "consumed", "config", "share_id", "why"),
    [
        ("mps-4", {}, None, None, "no shareID"),
        ("mps-4", {}, GpuConfig("TimeSlicing", "Long"), "s", "asks for sharing by"),
        ("ts-4", {}, GpuConfig("MPS"), "s", "asks for sharing by"),
        ("mps-4", {}, GpuConfig("MPS", mps=MpsSettings(0)), "s", "0 percent"),
        # No whole number of MiB.
        ("mps-mem", {"memory": "1G"}, None, "s", "was given 1000000000 bytes of"),
    ],
)
def test_what_can_never_be_shared_so_is_refused(
    form: str, consumed: dict[str, str], config: GpuConfig | None, share_id: str | None, why: str
) -> None:
    with pytest.raises(ClaimRefused, match=why):
        sharing(form, consumed or {"shares": "1"}, config, share_id)


def test_what_partitions_do_by_themselves_needs_nothing() -> None:
    device = f"{GPU}-mig-1g-10gb-0"
    name = KINDS.parse(device)
    assert name is not None
    allocated = AllocatedDevice("r", "p", device)
    assert sharing_request(allocated, name, MigDeviceConfig("TimeSlicing")) is None
    assert sharing_request(allocated, name, MigDeviceConfig()) is None
    assert sharing_request(allocated, name, MigDeviceConfig("MPS")) == SharingRequest("MPS")


def share(
    form: str,
    taken: Share,
    settings: MpsSettings | None = None,
    total: int = 80 * GIB,
    published: int | None = None,
    reserved: int = 0,
    *,
    limits: bool = False,
) -> Shareable:
    """A share of a GPU as it is planned."""
    name = KINDS.parse(f"{GPU}-{form}")
    assert name is not None
    assert name.shared is not None
    found = SharingRequest(name.shared.strategy, name.shared, taken, "", settings or MpsSettings())
    device = f"{GPU}-{form}"
    return Shareable(device, "r", found, "GPU-1", total, total - reserved, published, limits=limits)


def own(
    device: str, uuid: str, settings: MpsSettings | None = None, request: str = "r", *, whole: bool = True
) -> Shareable:
    """A device that its claim shares among its own pods."""
    return Shareable(
        device, request, SharingRequest("MPS", mps=settings or MpsSettings()), uuid, 0, 0, None, whole=whole
    )


def record(one: Shareable) -> ShareRecord:
    (found,) = share_records([one])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("form", "taken", "percent", "mib"),
    [
        ("mps-4", Share(4), 100, 80 * 1024),
        ("mps-48", Share(1), 2, 80 * 1024 // 48),
        ("mps-mem", Share(None, MIB), 1, 1),
        ("mps-8-mem", Share(2, GIB), 25, 1024),
        ("mps-frac-10", Share(3), 30, 24 * 1024),
        ("mps-frac-mem", Share(None, 40 * GIB), 50, 40 * 1024),
    ],
)
def test_limits_follow_from_what_was_taken(form: str, taken: Share, percent: int, mib: int) -> None:
    found = record(share(form, taken, published=80 * GIB))
    assert (found.group, found.multi_user) == (GPU, True)
    assert (found.active_thread_percentage, found.pinned_memory_mib) == (percent, mib)
    assert (found.shares, found.memory_bytes) == (taken.shares or 0, taken.memory_bytes or 0)


@given(st.integers(2, 48), st.data(), st.integers(8 * 1024, 200 * 1024), st.integers(0, 4096))
def test_all_shares_together_are_no_more_than_the_gpu_has_for_them(
    count: int, data: st.DataObject, mib: int, reserved_mib: int
) -> None:
    taken = data.draw(st.integers(1, count))
    one = share(f"mps-{count}", Share(taken), total=mib * MIB + 17, reserved=reserved_mib * MIB)
    found = record(one)
    assert found.active_thread_percentage * count <= 100 * taken
    assert 0 < found.pinned_memory_mib * count <= (mib - reserved_mib) * taken


@given(st.integers(1, 200 * 1024), st.integers(1, 200 * 1024))
def test_a_share_by_memory_always_has_limits_that_are_its_own(total: int, taken: int) -> None:
    """Zero would be no limit at all to the daemon."""
    one = share("mps-mem", Share(None, taken * MIB), total=total * MIB)
    if taken > total:
        with pytest.raises(ClaimRefused, match="which has"):
            record(one)
        return
    found = record(one)
    assert 1 <= found.active_thread_percentage <= max(1, 100 * taken // total)
    assert found.pinned_memory_mib == taken


def test_who_has_all_that_can_be_shared_has_all_multiprocessors_and_a_share_of_more_is_refused() -> None:
    def percentage(mib: int) -> int:
        one = share("mps-mem", Share(None, mib * MIB), total=81559 * MIB, reserved=454 * MIB)
        return record(one).active_thread_percentage

    assert (percentage(40552), percentage(81105), percentage(81559)) == (49, 100, 100)
    with pytest.raises(ClaimRefused, match="which has"):
        percentage(81560)


def test_a_time_slice_has_no_limits() -> None:
    assert record(share("ts-4", Share(1))) == ShareRecord(GPU, "TimeSlicing", 1)
    assert record(share("ts-mem", Share(None, 5 * GIB))).pinned_memory_mib == 0


def test_a_configuration_may_tighten_limits_and_not_widen_them() -> None:
    found = record(share("mps-4", Share(1), MpsSettings(10, GIB)))
    assert (found.active_thread_percentage, found.pinned_memory_mib) == (10, 1024)
    by_device = MpsSettings(None, None, (("GPU-1", GIB),))
    assert record(share("mps-4", Share(1), by_device)).pinned_memory_mib == 1024
    for settings, wrong in (
        (MpsSettings(26), "asks for 26 percent"),
        (MpsSettings(None, 21 * GIB), "asks for 21504 MiB"),
        (MpsSettings(None, None, (("0", 21 * GIB),)), "asks for 21504 MiB"),
    ):
        with pytest.raises(ClaimRefused, match=wrong):
            record(share("mps-4", Share(1), settings))


@pytest.mark.parametrize(
    ("form", "taken", "published", "shared", "unknown"),
    [
        ("mps-frac-10", Share(10), None, False, False),
        ("mps-frac-mem", Share(None, 79 * GIB), 79 * GIB, False, False),
        ("mps-frac-mem", Share(None, 78 * GIB), 79 * GIB, True, False),
        ("ts-frac-10-mem", Share(10, 70 * GIB), 79 * GIB, True, False),
        ("ts-frac-10-mem", Share(5, 79 * GIB), 79 * GIB, True, False),
        # Where only the slice tells whether it was all, nobody guesses.
        ("mps-frac-mem", Share(None, 79 * GIB), None, True, True),
        ("mps-frac-mem", Share(None, 40 * GIB), None, True, False),
        ("mps-frac-10-mem", Share(10, 79 * GIB), None, True, True),
        ("mps-frac-10-mem", Share(5, 79 * GIB), None, True, False),
        ("mps-mem", Share(None, 79 * GIB), None, True, False),
    ],
)
def test_only_who_takes_all_of_a_fractional_device_shares_nothing(
    form: str, taken: Share, published: int | None, *, shared: bool, unknown: bool
) -> None:
    one = share(form, taken, published=published)
    assert needs_published_memory(one) is unknown
    if not unknown:
        assert (share_records([one]) != (None,)) is shared


def test_who_has_all_of_a_fractional_device_shares_it_among_its_pods_where_asked() -> None:
    one = share("mps-frac-10", Share(10), MpsSettings(active_thread_percentage=40))
    assert one.sharing is not None
    asked = replace(one, sharing=replace(one.sharing, has_strategy=True))

    (record,) = share_records([asked])

    assert record is not None
    assert (record.group, record.active_thread_percentage, record.is_part) == (GPU, 40, False)
    assert share_records([one]) == (None,)


def test_gpus_that_a_claim_shares_alike_are_one_group_and_others_their_own() -> None:
    part = f"{GPU}-static-3g-40gb-4"
    third = "gpu-0000-03-00-0"
    ones = [
        own(OTHER, "GPU-1"),
        own(GPU, "GPU-2"),
        own(third, "GPU-0", MpsSettings(50), "other"),
        own(part, "MIG-1", request="part", whole=False),
    ]
    found = [one.group for one in share_records(ones) if one is not None]
    assert found == [GPU, GPU, third, part]


def test_limits_by_device_name_it_by_its_place_or_its_uuid() -> None:
    settings = MpsSettings(None, 4 * GIB, (("1", GIB),))
    found = share_records([own(GPU, "GPU-2", settings), own(OTHER, "GPU-1", settings)])
    assert [one.pinned_memory_mib for one in found if one] == [1024, 4096], "ordinals count sorted UUIDs"
    by_uuid = replace(settings, pinned_memory_bytes_per_device=(("GPU-1", GIB),))
    found = share_records([own(GPU, "GPU-2", by_uuid), own(OTHER, "GPU-1", by_uuid)])
    assert [one.pinned_memory_mib for one in found if one] == [4096, 1024]


@pytest.mark.parametrize("key", ["2", "GPU-3", "01"])
def test_a_limit_for_a_device_that_the_claim_has_not_is_refused(key: str) -> None:
    settings = MpsSettings(None, None, ((key, GIB),))
    with pytest.raises(ClaimRefused, match="this configuration applies to 0, 1, GPU-1, GPU-2"):
        share_records([own(GPU, "GPU-2", settings), own(OTHER, "GPU-1", settings)])


def test_one_request_cannot_use_two_daemons() -> None:
    part, form = "gpu-0000-01-00-0-mig-1g-10gb-", SharedForm("MPS", 4)
    one = share("mps-4", Share(1))
    for pair in (
        (one, replace(one, device=OTHER + shared_suffix(form))),
        (own(f"{part}0", "", whole=False), own(f"{part}1", "", whole=False)),
        (own(f"{part}0", "MIG-1", whole=False), own(f"{part}1", "MIG-2", whole=False)),
    ):
        with pytest.raises(ClaimRefused, match="a process can use MPS on only one of them"):
            share_records(pair)
        assert all(share_records((pair[0], replace(pair[1], request="other"))))
    assert all(share_records((one, one))), "two shares of one device have one daemon"
    assert all(share_records((own(GPU, "GPU-1"), own(OTHER, "GPU-2"))))


L4 = 23034 * MIB
"""The memory of an L4, which no number of shares divides into whole GiB."""


def l4(form: str, taken: Share) -> Shareable:
    """A share of an L4 whose driver holds containers to their memory."""
    return share(form, taken, total=L4, limits=True)


def held_to(one: Shareable) -> int | None:
    (share,) = share_records([one])
    return memory_limit_bytes(one, share)


@pytest.mark.parametrize(
    ("form", "taken", "reserved_mib", "limit_bytes"),
    [
        ("ts-mem", Share(None, 10 * GIB), 0, 10 * GIB),
        ("ts-4", Share(1), 0, 5758 * MIB),
        ("ts-4-mem", Share(1, 3 * GIB), 0, 3 * GIB),
        ("ts-frac-10", Share(3), 0, 6910 * MIB),
        # What the NVIDIA driver keeps for itself is nobody's.
        ("ts-4", Share(1), 470, 5641 * MIB),
        ("ts-4", Share(4), 470, 22564 * MIB),
    ],
)
def test_a_share_is_the_limit(form: str, taken: Share, reserved_mib: int, limit_bytes: int) -> None:
    one = share(form, taken, total=L4, published=L4, reserved=reserved_mib * MIB, limits=True)
    assert held_to(one) == limit_bytes


def test_who_has_a_gpu_alone_and_whom_the_driver_does_not_hold_is_held_to_nothing() -> None:
    own_pods = Shareable(GPU, "r", SharingRequest("TimeSlicing"), "GPU-1", L4, L4, None, limits=True)
    all_of_it = l4("ts-frac-10", Share(10))
    assert all_of_it.sharing is not None
    shared = replace(all_of_it, sharing=replace(all_of_it.sharing, has_strategy=True))
    unheld = replace(l4("ts-4", Share(1)), limits=False)
    assert [held_to(one) for one in (own_pods, all_of_it, shared, unheld)] == [None] * 4


@pytest.mark.parametrize(
    ("form", "taken"), [("ts-mem", Share(None, 511 * MIB)), ("ts-48", Share(1)), ("mps-48", Share(1))]
)
def test_a_share_in_which_nothing_starts_is_refused_for_good(form: str, taken: Share) -> None:
    with pytest.raises(ClaimRefused, match="no program starts with less than 512 MiB"):
        held_to(l4(form, taken))


def held(one: Shareable) -> HeldDevice:
    """What a claim would hold of it."""
    (share,) = share_records([one])
    return HeldDevice(
        *("r", "p", one.device, "0000:01:00.0", "GPU-1", "cdi"),
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
    for number in range(data.draw(st.integers(1, 15))):
        leaves = data.draw(st.booleans())
        if holders and leaves:
            del holders[data.draw(st.sampled_from(sorted(holders)))]
        taken = Share(
            None if form.shares is None else data.draw(st.integers(1, form.shares)),
            data.draw(st.integers(1, mib)) * MIB if form.memory else None,
        )
        limits = data.draw(st.integers(0, 3)) > 0
        now = total * data.draw(st.sampled_from([100, 100, 100, 93])) // 100  # with ECC turned on
        one = share(shared_suffix(form)[1:], taken, total=now, limits=limits)
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
    mine = held(l4("ts-mem", Share(None, 10 * GIB)))
    others = held(l4("ts-4", Share(3)))
    with pytest.raises(DeviceHeld, match="would be guaranteed") as caught:
        refuse_overpromised("a", [mine], [L4], [entry("b", others)])
    assert "team/b" in caught.value.logged
    assert "team/b" not in str(caught.value)
    unheld = replace(others, memory_limit_bytes=None)
    for wanted, present in (([mine], [entry("b", unheld)]), ([mine, mine, mine], [])):
        with pytest.raises(DeviceHeld, match="would be guaranteed"):
            refuse_overpromised("a", wanted, [L4] * len(wanted), present)
    refuse_overpromised("a", [mine], [L4], [entry("a", others)])
    refuse_overpromised("a", [mine], [L4], [entry("b", replace(others, pci="0000:02:00.0"))])
