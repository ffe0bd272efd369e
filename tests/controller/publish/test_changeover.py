"""Devices that are not wanted go when no claim has them, and until then nothing new takes their place."""

from dataclasses import replace

import pytest

from controller.publish.changeover import Published, is_whole, published
from driver.devices.region import overlap
from driver.devices.taints import TAINT_CHANGING, TAINT_LOST
from driver.policy.offers import Doubt
from tests.clusters import Backoff
from tests.controller import mig_node
from tests.controller.mig_node import (
    BALANCED,
    DYNAMIC,
    HIDDEN,
    OFF,
    POOL,
    SERVED,
    SHARED,
    SLICED,
    SMALL,
    WHOLE,
    names,
    offers,
    slices,
    taint_keys,
)
from tests.controller.pool import NOBODY, Claims, Pool
from tests.gpus import (
    TAINT_BLOCKED,
    ApiError,
    Device,
    FakeMachine,
    GpuPolicy,
    Inventory,
    Offers,
    Region,
    SharedOffer,
    Taint,
)

FIRST, SECOND = (gpu.pci for gpu in mig_node.inventory().gpus)
EMPTY = Offers((), ())
THERE, WANTED = offers(DYNAMIC), offers(BALANCED)
"""What is stored in most tests, and what is wanted instead."""
NEW = names(WANTED.devices)
IN_USE = "gpu-0000-1b-00-0-mig-1g-10gb-6"
CLAIMED = frozenset({IN_USE})
# A stored partition without counters does not say how large it is.
REGIONS = {
    device.name: device.regions
    for form in (WHOLE, DYNAMIC, BALANCED, SMALL, OFF)
    for device in offers(form).devices
}
PLACE = REGIONS[IN_USE]
AGAIN = Backoff(0.0, 0.0)


def is_kept_free(pool: Pool) -> bool:
    """Whether no new claim gets anything in the place of the claimed device."""
    return not any(overlap(REGIONS[device.name], PLACE) for device in pool.free())


def cut(slices: int = 3, start: int = 4, gpus: int = 2) -> Inventory:
    """The GPUs after an admin has made a partition on the first."""
    machine = FakeMachine.open("hgx-h100")
    mig_node.cut(machine, 0, slices, start)
    return mig_node.seen(machine, gpus)


WHOLE_SHARED = replace(WHOLE, shared=(SLICED,))
ALONE = "gpu-0000-1b-00-0-static-3g-40gb-4"


@pytest.mark.parametrize(
    ("before", "after", "in_use"),
    [
        (offers(WHOLE), THERE, ""),
        # Other attributes are no change of devices.
        (
            replace(THERE, devices=tuple(replace(one, attributes={"index": 7}) for one in THERE.devices)),
            THERE,
            "",
        ),
        (offers(WHOLE), offers(OFF), ""),
        (offers(SMALL), THERE, ""),
        (EMPTY, THERE, ""),
        (THERE, offers(DYNAMIC, of=mig_node.inventory(gpus=1)), ""),
        # What an admin does is done.
        (offers(WHOLE), offers(WHOLE, of=cut()), "gpu-0000-1b-00-0"),
        (offers(WHOLE_SHARED), offers(WHOLE_SHARED, of=cut()), ""),
        (offers(WHOLE, of=cut()), offers(WHOLE), ALONE),
        (EMPTY, offers(WHOLE), ALONE),
    ],
)
def test_where_nothing_goes_away_the_new_devices_come_at_once(
    before: Offers, after: Offers, in_use: str
) -> None:
    pool = Pool(frozenset({in_use}), stored=before, settle_seconds=3600.0)

    assert pool.step(after) is None
    assert pool.becomes(after)
    assert pool.remembered.offers.devices == after.devices
    assert pool.claims.looks == (not before.devices)


def test_a_wipe_needs_no_look_where_all_comes_back_as_it_was() -> None:
    pool = Pool(stored=THERE)
    pool.step(THERE)

    pool.stored = []
    assert pool.step(THERE) is None

    assert pool.becomes(THERE)
    assert pool.claims.looks == 0


def test_a_taint_for_a_claim_that_the_controller_before_knew_stays_until_a_look() -> None:
    pool = Pool(CLAIMED, stored=EMPTY)
    pool.step(WANTED)
    assert is_kept_free(pool)

    pool.remembered, pool.claims = Published(), Claims(ApiError("forbidden"))
    pool.changeover = replace(pool.changeover, allocated=pool.claims.allocated)
    pool.step(WANTED)

    assert is_kept_free(pool)
    assert taint_keys(pool.of(SECOND)) == {()}


def test_a_pool_of_which_a_slice_is_missing_is_known_in_part_only() -> None:
    stored = slices(THERE)

    assert is_whole(stored, POOL)
    assert not any(is_whole(part, POOL) for part in ([], stored[1:], stored[:1], [*stored, stored[0]]))
    assert not is_whole([*stored, *slices(THERE, 2)], POOL)


STATIC = GpuPolicy("partitions")
SHARED_BALANCED, SHARED_STATIC = replace(BALANCED, shared=(SERVED,)), replace(STATIC, shared=(SLICED,))


def on_cut(form: GpuPolicy) -> Offers:
    return offers(form, of=cut(gpus=1))


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        *(
            (offers(before), offers(after))
            for before, after in (
                (WHOLE, BALANCED),
                (WHOLE, HIDDEN),
                (DYNAMIC, WHOLE),
                (DYNAMIC, BALANCED),
                (DYNAMIC, HIDDEN),
                (BALANCED, SMALL),
                (BALANCED, DYNAMIC),
                # Another way to share.
                (SHARED, WHOLE),
                (WHOLE, SHARED),
                (SHARED, GpuPolicy("shared", shared=(SERVED,))),
                (SHARED, GpuPolicy("shared", shared=(SharedOffer("TimeSlicing", 8),))),
                (BALANCED, SHARED_BALANCED),
                (SHARED_BALANCED, BALANCED),
                (replace(DYNAMIC, shared=(SLICED,)), DYNAMIC),
            )
        ),
        # The partition of an admin is not shared while a claim has it alone.
        (on_cut(STATIC), on_cut(SHARED_STATIC)),
        (on_cut(SHARED_STATIC), on_cut(STATIC)),
    ],
)
def test_a_change_is_taint_look_switch(stored: Offers, wanted: Offers) -> None:
    going = [device for device in stored.devices if device.name not in names(wanted.devices)]
    both = {*names(stored.devices), *names(wanted.devices)}
    places = {device.name: device.regions for device in (*stored.devices, *wanted.devices)}

    def is_on_the_way(pool: Pool, *ones: Device) -> bool:
        """Whether these are not gone, and no new claim gets anything in their places."""
        free = [places[device.name] for device in pool.free()]
        return {one.name for one in ones} <= {*names(pool.devices)} <= both and not any(
            overlap(place, one.regions) for place in free for one in ones
        )

    pool, claimed = Pool(stored=stored), Pool(frozenset({going[0].name}), stored=stored)
    for each in (pool, claimed):
        each.step(wanted)
        assert set(names(each.devices)) == both
        assert is_on_the_way(each, *going)
        assert each.claims.looks == 0

    assert pool.step(wanted) is None
    assert pool.remembered.offers == wanted
    assert pool.claims.looks == 1
    claimed.step(wanted)
    assert is_on_the_way(claimed, going[0])


def test_the_look_waits_until_schedulers_have_seen_the_taint() -> None:
    pool = Pool(stored=THERE, settle_seconds=3600.0)

    pool.step(WANTED)
    again = pool.step(WANTED)

    assert again is not None
    assert 3590 < again <= 3600
    assert pool.claims.looks == 0


def test_a_new_controller_waits_for_schedulers_that_saw_a_pool_in_part() -> None:
    pool = Pool(stored=THERE, settle_seconds=3600.0)
    pool.stored[0]["spec"]["pool"]["resourceSliceCount"] = 3

    pool.step(THERE)

    assert pool.claims.looks == 0
    assert pool.free() == ()


def test_a_claim_is_looked_for_again_later_and_not_at_each_sync() -> None:
    pool = Pool(CLAIMED, stored=THERE)
    pool.step(WANTED)
    again = pool.step(WANTED)
    pool.step(WANTED)

    assert again is not None
    assert 0.9 < again <= 2.0
    assert pool.claims.looks == 1


def test_a_claimed_device_keeps_the_counters_that_it_consumes() -> None:
    pool = Pool(CLAIMED, stored=THERE)
    fewer = [replace(one, counters={"memory-slice-0": 1}) for one in THERE.counter_sets]
    first = next(one for one in THERE.devices if one.takes_all and one.pci == FIRST)
    whole = replace(first, consumes={"memory-slice-0": 1})
    for _ in range(2):
        pool.step(Offers((whole,), (), tuple(fewer)))

    assert names(pool.devices) == [whole.name, IN_USE]
    assert pool.free() == ()


def test_what_the_plugin_holds_needs_no_look_until_it_is_let_go() -> None:
    pool = Pool(stored=offers(WHOLE))
    held = frozenset(names(offers(WHOLE).devices))
    pool.step(WANTED, held)

    assert pool.step(WANTED, held) is None
    assert pool.claims.looks == 0
    assert pool.free() == ()

    pool.step(WANTED)
    assert pool.claims.looks == 1
    assert pool.becomes(WANTED)


def test_a_device_that_lost_the_taint_gets_it_again_before_the_look() -> None:
    pool = Pool(stored=THERE)
    pool.step(WANTED)
    device = next(one for one in pool.stored[-1]["spec"]["devices"] if one["name"] == IN_USE)
    del device["taints"]

    pool.step(WANTED)
    assert [one.name for one in pool.devices if one.name not in NEW] == [IN_USE]
    assert is_kept_free(pool)
    pool.step(WANTED)
    assert not pool.becomes(WANTED), "the next look comes with back-off"


def test_the_partition_of_a_claim_is_not_taken_for_one_of_an_admin_when_the_mode_changes() -> None:
    pool = Pool(CLAIMED, stored=THERE)
    wanted = offers(WHOLE, of=cut(slices=1, start=6))  # for the claim
    for _ in range(2):
        pool.step(wanted, CLAIMED)

    assert IN_USE in names(pool.of(FIRST))
    assert is_kept_free(pool)


def test_a_gpu_in_doubt_outlives_a_wipe_of_the_slices() -> None:
    pool = Pool(stored=THERE)
    lost = Taint("gpu.nvidia.com/gpu-lost", "", "NoSchedule")
    doubtful = replace(
        THERE,
        devices=tuple(one for one in THERE.devices if one.pci != FIRST),
        counter_sets=tuple(one for one in THERE.counter_sets if one.pci != FIRST),
        doubts=(Doubt(FIRST, whole=True, taints=(lost,)),),
    )
    pool.step(doubtful)
    before = pool.stored

    pool.stored = []
    pool.step(doubtful)

    assert pool.stored == before
    assert set(names(pool.devices)) == set(names(THERE.devices))


def test_a_device_that_stays_for_now_has_the_taints_of_its_health_now() -> None:
    sick = Taint(TAINT_LOST, "nvmlDeviceGetUUID", "NoSchedule")
    blocked = Taint(TAINT_BLOCKED, "in-use", "NoSchedule")
    wanted = replace(WANTED, devices=tuple(replace(d, taints=(sick, blocked)) for d in WANTED.devices))
    stale = replace(sick, key="gpu.nvidia.com/unmonitored")
    pool = Pool(stored=replace(THERE, devices=tuple(replace(d, taints=(stale,)) for d in THERE.devices)))

    pool.step(wanted)

    kept = tuple(device for device in pool.devices if device.name not in names(wanted.devices))
    assert taint_keys(kept) == {(TAINT_LOST, TAINT_CHANGING)}


def test_a_device_that_spans_gpus_keeps_both_of_them() -> None:
    """Else one of them would be handed out while a claim has the device that lies on both."""
    pair = Device("gpu-0000-1b-00-0-0000-43-00-0-vfio", FIRST, more_regions=(Region(SECOND),))
    pool = Pool(frozenset({pair.name}), NOBODY, stored=Offers((pair,), ()), backoff=AGAIN)
    for _ in range(2):
        assert pool.step(offers(WHOLE)) == 0.0
        assert pool.free() == ()
    pool.step(offers(WHOLE))
    assert pool.becomes(offers(WHOLE))


def test_what_only_an_older_generation_has_counts_as_published_and_the_newest_wins() -> None:
    old, new = WANTED, offers(SMALL)
    newer = replace(new, devices=tuple(replace(one, attributes={"index": 7}) for one in new.devices))

    devices, _ = published([*slices(old, 1), *slices(newer, 2)], POOL)

    assert {device.name for device in devices} == {*names(old.devices), *names(new.devices)}
    assert all(device.attributes == {"index": 7} for device in devices if device.name in names(new.devices))


def test_devices_whose_counters_are_gone_are_published_no_more() -> None:
    _counters, *devices = slices(offers(DYNAMIC, WHOLE))

    assert names(published(devices, POOL)[0]) == ["gpu-0000-43-00-0"]


def test_slices_of_another_pool_are_not_ours() -> None:
    assert published(slices(THERE), "node-a") == ((), ())
