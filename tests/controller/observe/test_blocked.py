"""A device that cannot be made now gets a taint, and no other does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.observe.blocked import with_blocked
from driver.devices.device import Device, Taint
from driver.devices.node_state import BlockedPlacement, NodeState
from driver.devices.taints import TAINT_BLOCKED
from driver.nvml.mig import Placement
from driver.policy.offers import Offers
from fakegpu.machine.fake_machine import FakeMachine
from tests.controller import mig_node
from tests.controller.mig_node import BALANCED, DYNAMIC, WHOLE, offers

GPUS = mig_node.inventory().gpus
FIRST = "gpu-0000-1b-00-0"
SECOND = "gpu-0000-43-00-0"


def blocked(found: Offers, state: NodeState, gpus: tuple[object, ...] = GPUS) -> dict[str, str]:
    """The devices that get the taint, with its value."""
    return {
        device.name: taint.value
        for device in with_blocked(found.devices, state, gpus)  # type: ignore[arg-type] # () or GPUs
        for taint in device.taints
        if taint == Taint(TAINT_BLOCKED, taint.value, "NoSchedule")
    }


def in_the_way(start: int, size: int, reason: str = "in-use") -> NodeState:
    span = Placement(start, size)
    return NodeState((), (BlockedPlacement(GPUS[0].pci, span, reason, "why"),))  # type: ignore[arg-type]


def test_nothing_is_blocked_where_nothing_is_in_the_way() -> None:
    assert with_blocked(offers(DYNAMIC).devices, NodeState(), GPUS) == offers(DYNAMIC).devices


def test_what_overlaps_is_blocked_and_the_whole_gpu_with_it() -> None:
    assert blocked(offers(DYNAMIC), in_the_way(6, 1, "foreign-instance")) == {
        FIRST: "foreign-instance",
        f"{FIRST}-mig-1g-10gb-6": "foreign-instance",
        f"{FIRST}-mig-3g-40gb-4": "foreign-instance",
    }


def test_a_place_that_is_not_known_blocks_all_of_the_gpu_and_no_other() -> None:
    state = NodeState((), (BlockedPlacement(GPUS[0].pci, None, "in-use", ""),))
    all_of_it = {device.name for device in offers(DYNAMIC).devices if device.name.startswith(FIRST)}
    assert blocked(offers(DYNAMIC), state).keys() == all_of_it


@pytest.mark.parametrize(("reason", "form"), [("nvidia-smi-hangs", "-ts-4"), ("mps-hangs", "-mps-4")])
def test_what_sets_shares_up_and_hangs_blocks_these_shares_alone(reason: str, form: str) -> None:
    devices = [
        Device(f"{FIRST}{form}", GPUS[0].pci, {"sharing": sharing})
        for form, sharing in (("", "none"), ("-ts-4", "time-slicing"), ("-mps-4", "mps"))
    ]
    state = NodeState((), (BlockedPlacement(GPUS[0].pci, None, reason, ""),))  # type: ignore[arg-type]

    assert blocked(Offers(tuple(devices), ()), state) == {f"{FIRST}{form}": reason}


def test_a_reason_that_no_label_can_hold_still_blocks() -> None:
    assert blocked(offers(WHOLE), in_the_way(0, 1, "not a label!")) == {FIRST: ""}


def test_a_static_partition_is_not_blocked_by_the_instance_that_it_is() -> None:
    machine = FakeMachine.open("hgx-h100")
    mig_node.cut(machine, 0, slices=3, start=4)
    static = offers(WHOLE, of=mig_node.seen(machine))

    assert blocked(static, in_the_way(4, 4, "foreign-instance")) == {}
    assert blocked(static, in_the_way(4, 4, "in-use")) == {f"{FIRST}-static-3g-40gb-4": "in-use"}
    assert blocked(static, in_the_way(4, 1, "foreign-instance")) != {}


def test_a_held_device_that_is_offered_blocks_nothing() -> None:
    assert blocked(offers(DYNAMIC), NodeState((f"{FIRST}-mig-1g-10gb-6", FIRST))) == {}


def test_a_held_partition_that_is_no_longer_offered_blocks_what_it_overlaps() -> None:
    assert blocked(offers(BALANCED), NodeState((f"{FIRST}-mig-3g-40gb-0",))) == {
        f"{FIRST}-mig-1g-10gb-2": "held-by-claim",
        f"{FIRST}-mig-1g-10gb-3": "held-by-claim",
        f"{FIRST}-mig-2g-20gb-0": "held-by-claim",
    }


def test_a_held_part_of_a_static_partition_blocks_all_of_the_partition() -> None:
    held = NodeState((f"{FIRST}-static-1c-3g-40gb-0-1",))
    assert f"{FIRST}-mig-1g-10gb-3" in blocked(offers(BALANCED), held)
    assert f"{FIRST}-mig-3g-40gb-4" not in blocked(offers(BALANCED), held)


@pytest.mark.parametrize("held", [FIRST, f"{FIRST}-mig-5g-50gb-0"])
def test_a_held_whole_gpu_or_one_of_an_unknown_profile_blocks_all_of_it(held: str) -> None:
    assert len(blocked(offers(BALANCED), NodeState((held,)))) == 4


def test_without_the_gpus_tables_a_held_partition_blocks_all_of_its_gpu() -> None:
    assert len(blocked(offers(BALANCED), NodeState((f"{FIRST}-mig-3g-40gb-0",)), ())) == 4


def test_the_name_of_another_driver_blocks_nothing() -> None:
    assert blocked(offers(BALANCED), NodeState(("nic-0",))) == {}


def test_a_device_has_one_such_taint_and_keeps_its_others() -> None:
    lost = Taint("gpu.nvidia.com/gpu-lost", "x", "NoSchedule")
    [device] = [one for one in offers(WHOLE).devices if one.name == FIRST]
    state = NodeState(
        (f"{FIRST}-mig-1g-10gb-6",), in_the_way(0, 1).blocked + in_the_way(1, 1, "foreign-instance").blocked
    )

    [found] = with_blocked([replace(device, taints=(lost,))], state, GPUS)

    assert found.taints == (lost, Taint(TAINT_BLOCKED, "in-use", "NoSchedule"))
