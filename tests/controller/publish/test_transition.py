"""A GPU gets other devices only when no claim has those that go away, one GPU at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.publish.transition import Change, Step, next_step
from driver.devices.device import Device, Taint
from driver.devices.gpu_policy import GpuPolicy
from driver.devices.region import Region
from driver.devices.taints import HELD_BY_CLAIM, TAINT_BLOCKED, TAINT_CHANGING, TAINT_LOST
from driver.hardware.gpu import Problem
from driver.policy.offers import Offers
from fakegpu.machine.fake_machine import FakeMachine
from tests.controller import mig_node
from tests.controller.mig_node import BALANCED, DYNAMIC, HIDDEN, OFF, SMALL, WHOLE, names, offers, taint_keys

FIRST, SECOND = (gpu.pci for gpu in mig_node.inventory().gpus)
NOBODY: frozenset[str] = frozenset()
CHANGING = {(TAINT_CHANGING,)}


def step(
    wanted: Offers, stored: Offers, allocated: frozenset[str] | None = None, held: frozenset[str] = NOBODY
) -> Step:
    return next_step(wanted, stored.devices, stored.counter_sets, allocated, held)


def of(found: Offers, pci: object) -> tuple[Device, ...]:
    return tuple(device for device in found.devices if device.pci == pci)


EMPTY = Offers((), ())


@pytest.mark.parametrize("form", [WHOLE, DYNAMIC, BALANCED, HIDDEN])
def test_where_nothing_is_stored_a_look_at_the_claims_comes_first(form: GpuPolicy) -> None:
    wanted = offers(form)

    assert step(wanted, EMPTY).offers == replace(wanted, devices=(), counter_sets=())
    assert step(wanted, EMPTY, NOBODY) == Step(wanted, ())


def test_a_claim_on_what_is_stored_no_more_keeps_its_gpu_and_no_other_off_the_pool() -> None:
    wanted, has = offers(BALANCED), frozenset({"gpu-0000-43-00-0-mig-1g-10gb-6"})

    found = step(wanted, EMPTY, has)

    assert found.offers.devices == of(wanted, FIRST)
    change = Change(str(SECOND), tainted=True, in_the_way=has, appears=True)
    assert found.changes == (change,)


def test_a_claim_whose_place_the_offers_keep_free_is_in_nobodys_way() -> None:
    wanted, has = offers(BALANCED), frozenset({"gpu-0000-43-00-0-mig-1g-10gb-6"})

    assert next_step(wanted, [], [], has, NOBODY, avoided=has) == Step(wanted, ())
    without_taints = next_step(wanted, [], [], has, NOBODY, avoided=has, needs_taint=False)
    assert [change.unit for change in without_taints.changes] == [str(SECOND)]


def test_a_claim_on_an_admins_partition_that_is_gone_is_in_nobodys_way() -> None:
    gone = frozenset({"gpu-0000-43-00-0-static-3g-40gb-4"})
    assert step(offers(WHOLE), EMPTY, gone) == Step(offers(WHOLE), ())


def test_where_a_part_of_the_pool_is_gone_new_devices_wait_for_a_look_beside_those_that_are_there() -> None:
    wanted, small = offers(DYNAMIC), offers(SMALL)

    found = next_step(wanted, small.devices, small.counter_sets, None, NOBODY, knows_all=False)

    assert sorted(names(found.offers.devices)) == sorted(names(small.devices))
    assert taint_keys(found.offers.devices) == CHANGING
    assert next_step(wanted, small.devices, small.counter_sets, NOBODY, NOBODY, knows_all=False).changes == ()


def test_a_taint_for_a_claim_that_the_controller_before_knew_stays_until_a_look_at_the_claims() -> None:
    wanted = offers(BALANCED)
    has = frozenset({"gpu-0000-43-00-0-mig-1g-10gb-6"})
    held = Taint(TAINT_BLOCKED, HELD_BY_CLAIM, "NoSchedule")
    stored = [replace(one, taints=(held,)) if one.pci == SECOND else one for one in wanted.devices]

    for allocated in (None, has):
        found = next_step(wanted, stored, wanted.counter_sets, allocated, NOBODY, knows_all=False)
        assert taint_keys(of(found.offers, SECOND)) == CHANGING
        assert of(found.offers, FIRST) == of(wanted, FIRST)
    assert next_step(wanted, stored, wanted.counter_sets, NOBODY, NOBODY, knows_all=False).changes == ()


@pytest.mark.parametrize(("before", "after"), [(WHOLE, DYNAMIC), (WHOLE, OFF), (SMALL, DYNAMIC)])
def test_where_nothing_goes_away_the_new_devices_come_at_once(before: GpuPolicy, after: GpuPolicy) -> None:
    assert step(offers(after), offers(before)) == Step(offers(after), ())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (WHOLE, BALANCED),
        (WHOLE, HIDDEN),
        (DYNAMIC, WHOLE),
        (DYNAMIC, BALANCED),
        (DYNAMIC, HIDDEN),
        (BALANCED, SMALL),
        (BALANCED, DYNAMIC),
    ],
)
def test_at_first_what_is_there_only_gets_the_taint(before: GpuPolicy, after: GpuPolicy) -> None:
    found = step(offers(after), offers(before), NOBODY)

    assert sorted(names(found.offers.devices)) == sorted(names(offers(before).devices))
    assert taint_keys(found.offers.devices) == CHANGING
    assert found.offers.counter_sets == offers(before).counter_sets
    assert [change.tainted for change in found.changes] == [False, False]


def test_without_a_look_at_the_claims_the_tainted_devices_stay() -> None:
    tainted = step(offers(BALANCED), offers(DYNAMIC)).offers

    found = step(offers(BALANCED), tainted)

    assert found.offers == replace(tainted, withheld=offers(BALANCED).withheld)
    tainted_units = [(change.unit, change.tainted) for change in found.changes]
    assert tainted_units == [(str(FIRST), True), (str(SECOND), True)]


def test_when_no_claim_has_them_the_new_devices_come() -> None:
    tainted = step(offers(BALANCED), offers(DYNAMIC)).offers

    assert step(offers(BALANCED), tainted, NOBODY) == Step(offers(BALANCED), ())


@pytest.mark.parametrize("way", ["allocated", "held"])
def test_a_claim_keeps_its_gpu_as_it_is_and_no_other(way: str) -> None:
    tainted = step(offers(BALANCED), offers(DYNAMIC)).offers
    has = frozenset({"gpu-0000-43-00-0-mig-1g-10gb-6"})

    found = step(offers(BALANCED), tainted, has if way == "allocated" else NOBODY, has)

    assert of(found.offers, FIRST) == of(offers(BALANCED), FIRST)
    assert of(found.offers, SECOND) == of(tainted, SECOND)
    [counters] = found.offers.counter_sets
    assert counters.pci == SECOND
    assert [(change.unit, change.in_the_way) for change in found.changes] == [(str(SECOND), has)]


def test_a_claim_on_a_device_that_stays_is_in_nobodys_way() -> None:
    tainted = step(offers(BALANCED), offers(DYNAMIC)).offers
    stays = frozenset(names(offers(BALANCED).devices)) & set(names(tainted.devices))

    assert stays
    assert step(offers(BALANCED), tainted, stays, stays).changes == ()


def test_a_device_without_the_taint_has_to_get_it_first() -> None:
    tainted = step(offers(BALANCED), offers(DYNAMIC)).offers
    one_lost_it = replace(tainted, devices=(replace(tainted.devices[0], taints=()), *tainted.devices[1:]))

    found = step(offers(BALANCED), one_lost_it, NOBODY)

    assert [(change.unit, change.tainted) for change in found.changes] == [(str(FIRST), False)]
    assert taint_keys(of(found.offers, FIRST)) == CHANGING
    assert of(found.offers, SECOND) == of(offers(BALANCED), SECOND)


def test_an_api_server_that_stores_no_taints_is_not_waited_for() -> None:
    there = offers(DYNAMIC)

    found = next_step(offers(BALANCED), there.devices, there.counter_sets, NOBODY, NOBODY, needs_taint=False)

    assert found.changes == ()


def test_a_change_that_is_taken_back_takes_the_taint_away() -> None:
    tainted = step(offers(BALANCED), offers(DYNAMIC)).offers
    assert step(offers(DYNAMIC), tainted) == Step(offers(DYNAMIC), ())


def test_other_attributes_are_no_change_of_devices() -> None:
    there = offers(DYNAMIC)
    older = replace(there, devices=tuple(replace(one, attributes={"index": 7}) for one in there.devices))

    assert step(there, older) == Step(there, ())


def test_a_gpu_that_left_the_node_takes_its_devices_along() -> None:
    left = offers(DYNAMIC, of=mig_node.inventory(gpus=1))
    assert step(left, offers(DYNAMIC)) == Step(left, ())


def test_partitions_of_an_admin_come_and_go_at_once_and_the_whole_gpu_makes_room() -> None:
    machine = FakeMachine.open("hgx-h100")
    mig_node.cut(machine, 0, slices=3, start=4)
    cut = offers(WHOLE, of=mig_node.seen(machine))
    static = "gpu-0000-1b-00-0-static-3g-40gb-4"
    assert names(of(cut, FIRST)) == [static]

    whole_in_use = frozenset({"gpu-0000-1b-00-0"})
    assert step(cut, offers(WHOLE), whole_in_use, whole_in_use) == Step(cut, ())
    assert step(offers(WHOLE), cut, frozenset({static})) == Step(offers(WHOLE), ())


def test_the_partition_of_a_claim_is_not_taken_for_one_of_an_admin_when_the_mode_changes() -> None:
    machine = FakeMachine.open("hgx-h100")
    mig_node.cut(machine, 0, slices=1, start=6)  # for the claim
    of_claim = frozenset({"gpu-0000-1b-00-0-mig-1g-10gb-6"})

    found = step(offers(WHOLE, of=mig_node.seen(machine)), offers(DYNAMIC), of_claim, of_claim)

    assert names(of(found.offers, FIRST)) == names(of(offers(DYNAMIC), FIRST))
    assert found.changes[0].in_the_way == of_claim


def test_a_static_partition_that_is_gone_leaves_also_while_its_gpu_waits() -> None:
    machine = FakeMachine.open("hgx-h100")
    mig_node.cut(machine, 0, slices=1, start=6)
    static = of(offers(WHOLE, of=mig_node.seen(machine)), FIRST)
    cut_off = replace(offers(DYNAMIC), devices=(*offers(DYNAMIC).devices, *static))

    found = step(offers(BALANCED), cut_off)

    assert sorted(names(found.offers.devices)) == sorted(names(offers(DYNAMIC).devices))


def test_a_waiting_gpu_has_the_taints_of_its_health_now() -> None:
    sick = Taint(TAINT_LOST, "nvmlDeviceGetUUID", "NoSchedule")
    blocked = Taint(TAINT_BLOCKED, "in-use", "NoSchedule")
    wanted = offers(BALANCED)
    wanted = replace(wanted, devices=tuple(replace(d, taints=(sick, blocked)) for d in wanted.devices))
    stale = replace(sick, key="gpu.nvidia.com/unmonitored")
    there = offers(DYNAMIC)
    there = replace(there, devices=tuple(replace(d, taints=(stale,)) for d in there.devices))

    assert taint_keys(step(wanted, there).offers.devices) == {(TAINT_LOST, TAINT_CHANGING)}


def test_a_waiting_gpu_that_is_withheld_has_the_taints_of_its_health_now() -> None:
    problem = Problem("nvmlDeviceGetUUID", "lost", "fell off the bus")
    fine = mig_node.inventory()
    sick = replace(fine, gpus=tuple(replace(gpu, problems=(problem,)) for gpu in fine.gpus))

    found = step(offers(HIDDEN, of=sick), offers(DYNAMIC))

    assert taint_keys(found.offers.devices) == {(TAINT_LOST, TAINT_CHANGING)}


def test_a_gpu_that_waits_leaves_the_order_of_the_others_alone() -> None:
    found = step(offers(BALANCED, DYNAMIC), offers(WHOLE, DYNAMIC))

    assert names(found.offers.devices) == [
        *names(of(offers(BALANCED, DYNAMIC), SECOND)),
        "gpu-0000-1b-00-0",
    ]
    assert taint_keys(of(found.offers, SECOND)) == {()}


def test_gpus_that_a_device_spans_change_together() -> None:
    """Else one of them would be handed out while a claim has the device that lies on both."""
    there = Device("pair", FIRST, more_regions=(Region(SECOND),))
    wanted = offers(WHOLE, WHOLE)

    tainted = next_step(wanted, [there], [], None, NOBODY)
    assert names(tainted.offers.devices) == ["pair"]
    assert [change.unit for change in tainted.changes] == [str(FIRST)]

    held = next_step(wanted, tainted.offers.devices, [], frozenset({"pair"}), NOBODY)
    assert names(held.offers.devices) == ["pair"]
    free = next_step(wanted, tainted.offers.devices, [], NOBODY, NOBODY)
    assert free.offers == wanted


def test_a_device_on_no_gpu_waits_for_its_claim_as_others_do() -> None:
    loose = Device("loose", None)
    wanted = offers(WHOLE)

    tainted = next_step(wanted, [*wanted.devices, loose], [], None, NOBODY)
    assert names(tainted.offers.devices) == [*names(wanted.devices), "loose"]
    held = next_step(wanted, tainted.offers.devices, [], frozenset({"loose"}), NOBODY)
    assert [change.in_the_way for change in held.changes] == [{"loose"}]
    assert next_step(wanted, tainted.offers.devices, [], NOBODY, NOBODY).offers == wanted
