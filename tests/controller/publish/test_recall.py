"""What a look could not tell is as the stored slices have it."""

from __future__ import annotations

from dataclasses import replace

from controller.publish.recall import recalled
from driver.devices.device import Device, Taint
from driver.devices.region import Region
from driver.policy.elsewhere import Doubt
from driver.policy.offers import Offers
from tests.controller import mig_node
from tests.controller.mig_node import DYNAMIC, WHOLE, names, offers

FIRST, SECOND = (gpu.pci for gpu in mig_node.inventory().gpus)
LOST = Taint("gpu.nvidia.com/gpu-lost", "", "NoSchedule")
STORED = offers(DYNAMIC)


def only(pci: object, found: Offers) -> Offers:
    """The offers of one GPU."""
    return replace(
        found,
        devices=tuple(device for device in found.devices if device.pci == pci),
        counter_sets=tuple(one for one in found.counter_sets if one.pci == pci),
    )


def recall(wanted: Offers, stored: Offers = STORED) -> Offers:
    return recalled(wanted, stored.devices, stored.counter_sets)


def test_without_a_doubt_nothing_is_recalled() -> None:
    assert recall(only(SECOND, offers(DYNAMIC))) == only(SECOND, offers(DYNAMIC))


def test_a_gpu_in_doubt_keeps_its_devices_with_taints_and_its_counters() -> None:
    wanted = replace(only(SECOND, offers(DYNAMIC)), doubts=(Doubt(FIRST, whole=True, taints=(LOST,)),))

    found = recall(wanted)

    kept = only(FIRST, found).devices
    assert names(kept) == names(only(FIRST, STORED).devices)
    assert {device.taints for device in kept} == {(LOST,)}
    assert only(SECOND, found).devices == wanted.devices
    assert found.counter_sets == STORED.counter_sets


def test_a_gpu_that_was_never_published_is_not_invented() -> None:
    wanted = replace(only(SECOND, offers(WHOLE)), doubts=(Doubt(FIRST, whole=True, taints=(LOST,)),))
    assert recall(wanted, only(SECOND, STORED)).devices == wanted.devices


def test_a_gpu_that_nobody_can_name_may_be_any_that_was_not_read() -> None:
    wanted = replace(only(SECOND, offers(DYNAMIC)), doubts=(Doubt(None, whole=True, taints=(LOST,)),))
    assert {device.pci for device in recall(wanted).devices if device.taints} == {FIRST}


def test_a_device_that_spans_gpus_stays_only_if_all_are_in_doubt() -> None:
    pair = Device("pair", FIRST, more_regions=(Region(SECOND),))
    one = Doubt(FIRST, whole=True, taints=(LOST,))
    other = Doubt(SECOND, whole=True, taints=(LOST,))
    assert names(recalled(Offers((), (), doubts=(one, other)), [pair], []).devices) == ["pair"]
    assert recalled(Offers((), (), doubts=(one,)), [pair], []).devices == ()


def test_attributes_that_were_never_told_are_those_that_are_stored_of_the_same_board() -> None:
    whole = offers(WHOLE)
    untold = replace(
        whole,
        devices=tuple(
            replace(one, attributes={"uuid": one.attributes["uuid"], "index": 7}, capacity={})
            for one in whole.devices
        ),
        doubts=(Doubt(FIRST, whole=False, taints=()),),
    )

    first, second = recall(untold, whole).devices

    assert first.attributes == {**whole.devices[0].attributes, "index": 7}
    assert first.capacity == whole.devices[0].capacity
    assert second == untold.devices[1]
    exchanged = tuple(replace(one, attributes={**one.attributes, "uuid": "GPU-x"}) for one in whole.devices)
    assert recall(untold, replace(whole, devices=exchanged)).devices == untold.devices
