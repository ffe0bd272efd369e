"""Shared devices come, go and are blocked like the GPUs and partitions that they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.observe.blocked import with_blocked
from driver.devices.gpu_policy import GpuPolicy, SharedOffer
from driver.devices.node_state import NodeState
from driver.devices.taints import TAINT_BLOCKED
from driver.policy.offers import Offers
from fakegpu.machine.fake_machine import FakeMachine
from tests.controller import mig_node
from tests.controller.mig_node import BALANCED, DYNAMIC, OFF, SERVED, SHARED, SLICED, WHOLE, names, offers
from tests.controller.pool import NOBODY, Pool

GPUS = mig_node.inventory().gpus
STATIC = GpuPolicy("partitions")
SHARED_BALANCED = replace(BALANCED, shared=(SERVED,))
SHARED_STATIC = replace(STATIC, shared=(SLICED,))


def cut() -> FakeMachine:
    machine = FakeMachine.open("hgx-h100")
    mig_node.cut(machine, 0, slices=3, start=4)
    return machine


def reached(wanted: Offers, stored: Offers, in_use: frozenset[str] = NOBODY) -> Offers:
    """What is published of the first GPU once the taint stands and the claims were read."""
    pool = Pool(in_use, stored=stored)
    for _ in range(2):
        pool.step(wanted)
    return pool.remembered.offers


def first_step(wanted: Offers, stored: Offers, held: frozenset[str] = NOBODY) -> Offers:
    """What is published at first."""
    pool = Pool(stored=stored)
    pool.step(wanted, held)
    return pool.remembered.offers


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (SHARED, WHOLE),
        (WHOLE, SHARED),
        (SHARED, GpuPolicy("shared", shared=(SERVED,))),
        (SHARED, GpuPolicy("shared", shared=(SharedOffer("TimeSlicing", 8),))),
        (BALANCED, SHARED_BALANCED),
        (SHARED_BALANCED, BALANCED),
        (replace(DYNAMIC, shared=(SLICED,)), DYNAMIC),
    ],
)
def test_another_way_to_share_waits_until_no_claim_has_the_old_one(
    before: GpuPolicy, after: GpuPolicy
) -> None:
    stored, wanted = offers(before), offers(after)
    going = sorted(set(names(stored.devices)) - set(names(wanted.devices)))

    assert set(going) < {device.name for device in first_step(wanted, stored).devices if device.taints}
    assert reached(wanted, stored) == wanted
    in_use = frozenset(going[:1])
    assert in_use < {device.name for device in reached(wanted, stored, in_use).devices if device.taints}


@pytest.mark.parametrize(("before", "after"), [(WHOLE, replace(OFF, shared=(SLICED,))), (SHARED, OFF)])
def test_a_form_beside_the_others_comes_at_once_and_goes_when_it_is_free(
    before: GpuPolicy, after: GpuPolicy
) -> None:
    stored, wanted = offers(before), offers(after)

    assert (first_step(wanted, stored) == wanted) == (
        set(names(stored.devices)) <= set(names(wanted.devices))
    )


@pytest.mark.parametrize(("before", "after"), [(STATIC, SHARED_STATIC), (SHARED_STATIC, STATIC)])
def test_the_partition_of_an_admin_is_not_shared_while_a_claim_has_it_alone(
    before: GpuPolicy, after: GpuPolicy
) -> None:
    node = mig_node.seen(cut(), 1)
    stored, wanted = offers(before, of=node), offers(after, of=node)

    held = reached(wanted, stored, frozenset(names(stored.devices)))

    assert set(names(held.devices)) == {*names(stored.devices), *names(wanted.devices)}
    assert all(device.taints for device in held.devices)
    assert reached(wanted, stored) == wanted


@pytest.mark.parametrize("form", [STATIC, SHARED_STATIC])
def test_the_partition_of_an_admin_that_is_gone_goes_at_once(form: GpuPolicy) -> None:
    stored = offers(form, of=mig_node.seen(cut(), 1))
    wanted = offers(GpuPolicy(), of=mig_node.inventory(gpus=1))
    in_use = frozenset(names(stored.devices))

    assert names(first_step(wanted, stored, in_use).devices) == names(wanted.devices)


def test_a_shared_gpu_on_which_an_admin_made_partitions_goes_at_once() -> None:
    stored = offers(replace(WHOLE, shared=(SLICED,)), of=mig_node.inventory(gpus=1))
    wanted = offers(replace(WHOLE, shared=(SLICED,)), of=mig_node.seen(cut(), 1))

    assert first_step(wanted, stored) == wanted


def blocked(found: Offers, state: NodeState) -> dict[str, str]:
    """The devices that get the taint, with its value."""
    return {
        device.name: taint.value
        for device in with_blocked(found.devices, state, GPUS)
        for taint in device.taints
        if taint.key == TAINT_BLOCKED
    }
