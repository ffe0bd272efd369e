"""A device that cannot be made now gets a taint, and no other does."""

from dataclasses import replace
from functools import cache

import pytest

from tests.clusters import with_blocked
from tests.controller import mig_node
from tests.controller.mig_node import BALANCED, DYNAMIC, SERVED, SHARED, SLICED, WHOLE, offers
from tests.gpus import (
    TAINT_BLOCKED,
    BlockedPlacement,
    Device,
    FakeMachine,
    GpuPolicy,
    NodeState,
    Offers,
    Placement,
    Taint,
)

GPUS = mig_node.inventory().gpus
FIRST = "gpu-0000-1b-00-0"
MIG = f"{FIRST}-mig"
BY_MPS = GpuPolicy("shared", shared=(SERVED,))
EACH_WAY = tuple(
    Device(f"{FIRST}{form}", GPUS[0].pci, {"sharing": sharing})
    for form, sharing in (("", "none"), ("-ts-4", "time-slicing"), ("-mps-4", "mps"))
)


@cache
def cut(*shared: str) -> Offers:
    """What is offered of a GPU of which an admin has made a partition."""
    machine = FakeMachine.open("hgx-h100")
    mig_node.cut(machine, 0, slices=3, start=4)
    form = GpuPolicy("partitions", shared=(SLICED,)) if shared else WHOLE
    return offers(form, of=mig_node.seen(machine))


def blocked(found: Offers, state: NodeState, gpus: tuple[object, ...] = GPUS) -> dict[str, str]:
    """The devices that get the taint, with its value; each name without that of its GPU."""
    return {
        device.name.removeprefix(FIRST): taint.value
        for device in with_blocked(found.devices, state, gpus)  # type: ignore[arg-type] # () or GPUs
        for taint in device.taints
        if taint == Taint(TAINT_BLOCKED, taint.value, "NoSchedule")
    }


def held(*names: str) -> NodeState:
    return NodeState(names)


def lies(place: tuple[int, int] | None, reason: str = "in-use", *names: str) -> NodeState:
    """Something lies at a place of the first GPU, or anywhere on it."""
    span = None if place is None else Placement(*place)
    return NodeState(names, (BlockedPlacement(GPUS[0].pci, span, reason, "why"),))  # type: ignore[arg-type]


ALL_OF_IT = {
    device.name.removeprefix(FIRST) for device in offers(DYNAMIC).devices if device.pci == GPUS[0].pci
}
OVER_0_TO_4 = dict.fromkeys(("-mig-1g-10gb-2", "-mig-1g-10gb-3", "-mig-2g-20gb-0"), "held-by-claim")


@pytest.mark.parametrize(
    ("found", "state", "expected"),
    [
        (offers(DYNAMIC), NodeState(), {}),
        (
            *(offers(DYNAMIC), lies((6, 1), "foreign-instance")),
            dict.fromkeys(("", "-mig-1g-10gb-6", "-mig-3g-40gb-4"), "foreign-instance"),
        ),
        # A place that is not known is all of the GPU, and no other.
        (offers(DYNAMIC), lies(None), dict.fromkeys(ALL_OF_IT, "in-use")),
        # What sets shares up and hangs blocks these shares alone.
        (Offers(EACH_WAY, ()), lies(None, "nvidia-smi-hangs"), {"-ts-4": "nvidia-smi-hangs"}),
        (Offers(EACH_WAY, ()), lies(None, "mps-hangs"), {"-mps-4": "mps-hangs"}),
        # A reason that no label can hold still blocks.
        (offers(WHOLE), lies((0, 1), "not a label!"), {"": ""}),
        # A static partition is not blocked by the instance that it is, also where it is shared.
        (cut(), lies((4, 4), "foreign-instance"), {}),
        (cut("shared"), lies((4, 4), "foreign-instance"), {}),
        (cut(), lies((4, 4)), {"-static-3g-40gb-4": "in-use"}),
        (cut(), lies((4, 1), "foreign-instance"), {"-static-3g-40gb-4": "foreign-instance"}),
        (offers(SHARED), lies((6, 1)), {"-ts-4": "in-use"}),
        # An MPS daemon that does not run.
        (offers(BY_MPS), lies(None, "mps-daemon", f"{FIRST}-mps-4"), {"-mps-4": "mps-daemon"}),
        (
            *(offers(replace(BALANCED, shared=(SERVED,))), lies((4, 4), "mps-daemon")),
            {"-mig-3g-40gb-4-mps-4": "mps-daemon"},
        ),
        # What claims hold blocks nothing while it is offered, else what it overlaps.
        (offers(DYNAMIC), held(f"{MIG}-1g-10gb-6", FIRST), {}),
        (offers(SHARED), held(f"{FIRST}-ts-4"), {}),
        (offers(BALANCED), held("nic-0"), {}),
        (offers(BALANCED), held(f"{MIG}-3g-40gb-0"), OVER_0_TO_4),
        (offers(BALANCED), held(f"{MIG}-3g-40gb-0-mps-4"), OVER_0_TO_4),
        (offers(BALANCED), held(f"{FIRST}-static-1c-3g-40gb-0-1"), OVER_0_TO_4),
        (offers(WHOLE), held(f"{FIRST}-ts-4"), {"": "held-by-claim"}),
        (offers(BY_MPS), held(f"{FIRST}-ts-4"), {"-mps-4": "held-by-claim"}),
        *(
            (*(offers(BALANCED), held(name)), OVER_0_TO_4 | {"-mig-3g-40gb-4": "held-by-claim"})
            for name in (FIRST, f"{MIG}-5g-50gb-0")  # the whole GPU, and an unknown profile
        ),
    ],
)
def test_what_lies_in_its_place_blocks_a_device(
    found: Offers, state: NodeState, expected: dict[str, str]
) -> None:
    assert blocked(found, state) == expected


def test_without_the_gpus_tables_a_held_partition_blocks_all_of_its_gpu() -> None:
    assert len(blocked(offers(BALANCED), held(f"{MIG}-3g-40gb-0"), ())) == 4


def test_a_device_has_one_such_taint_and_keeps_its_others() -> None:
    lost = Taint("gpu.nvidia.com/gpu-lost", "x", "NoSchedule")
    [device] = [one for one in offers(WHOLE).devices if one.name == FIRST]
    twice = lies((0, 1)).blocked + lies((1, 1), "foreign-instance").blocked

    [found] = with_blocked([replace(device, taints=(lost,))], NodeState((f"{MIG}-1g-10gb-6",), twice), GPUS)

    assert found.taints == (lost, Taint(TAINT_BLOCKED, "in-use", "NoSchedule"))
