"""What a look could not tell is as the stored slices have it."""

from dataclasses import replace

from controller.publish.restore_missing import recalled
from driver.policy.offers import Doubt
from tests.controller import mig_node
from tests.controller.mig_node import DYNAMIC, WHOLE, names, offers
from tests.gpus import CounterSet, Device, Offers, Region, Taint

FIRST, SECOND = (gpu.pci for gpu in mig_node.inventory().gpus)
LOST = Taint("gpu.nvidia.com/gpu-lost", "", "NoSchedule")
STORED = offers(DYNAMIC)
SICK = Doubt(FIRST, whole=True, taints=(LOST,))
AWAY = Doubt(FIRST, whole=True, taints=(), away=True)


def only(pci: object, found: Offers) -> Offers:
    """The offers of one GPU."""
    return replace(
        found,
        devices=tuple(device for device in found.devices if device.pci == pci),
        counter_sets=tuple(one for one in found.counter_sets if one.pci == pci),
    )


def recall(wanted: Offers, stored: Offers = STORED) -> Offers:
    return recalled(wanted, stored.devices, stored.counter_sets)


def recalled_of(wanted: list[Device], stored: list[Device], *doubts: Doubt) -> tuple[Device, ...]:
    """The devices where none needs counters."""
    return recalled(Offers(tuple(wanted), (), doubts=doubts), stored, []).devices


def test_without_a_doubt_nothing_is_recalled() -> None:
    assert recall(only(SECOND, offers(DYNAMIC))) == only(SECOND, offers(DYNAMIC))


def test_a_gpu_in_doubt_keeps_its_devices_with_taints_and_its_counters() -> None:
    wanted = replace(only(SECOND, offers(DYNAMIC)), doubts=(SICK,))

    found = recall(wanted)

    kept = only(FIRST, found).devices
    assert names(kept) == names(only(FIRST, STORED).devices)
    assert {device.taints for device in kept} == {(LOST,)}
    assert only(SECOND, found).devices == wanted.devices
    assert found.counter_sets == STORED.counter_sets


def test_a_gpu_that_was_never_published_is_not_invented() -> None:
    wanted = replace(only(SECOND, offers(WHOLE)), doubts=(SICK,))
    assert recall(wanted, only(SECOND, STORED)).devices == wanted.devices


def test_a_gpu_that_nobody_can_name_may_be_any_that_was_not_read() -> None:
    wanted = replace(only(SECOND, offers(DYNAMIC)), doubts=(replace(SICK, pci=None),))
    assert {device.pci for device in recall(wanted).devices if device.taints} == {FIRST}


def test_a_device_that_spans_gpus_stays_only_if_all_are_in_doubt() -> None:
    pair = Device("pair", FIRST, more_regions=(Region(SECOND),))
    both = SICK, replace(SICK, pci=SECOND)
    assert names(recalled_of([], [pair], *both)) == ["pair"]
    assert recalled_of([], [pair], SICK) == ()


def test_attributes_that_were_never_told_are_those_that_are_stored_of_the_same_board() -> None:
    whole = offers(WHOLE)
    unanswered = replace(
        whole,
        devices=tuple(
            replace(one, attributes={"uuid": one.attributes["uuid"], "index": 7}, capacity={})
            for one in whole.devices
        ),
        doubts=(Doubt(FIRST, whole=False, taints=()),),
    )

    first, second = recall(unanswered, whole).devices

    assert first.attributes == {**whole.devices[0].attributes, "index": 7}
    assert first.capacity == whole.devices[0].capacity
    assert second == unanswered.devices[1]
    exchanged = tuple(replace(one, attributes={**one.attributes, "uuid": "GPU-x"}) for one in whole.devices)
    assert recall(unanswered, replace(whole, devices=exchanged)).devices == unanswered.devices


def test_what_stays_keeps_its_place_among_the_others() -> None:
    listed = [Device(f"d{number}", SECOND if number in (0, 2, 4) else FIRST) for number in range(5)]
    wanted = Offers((listed[1], listed[3]), (), doubts=(replace(AWAY, pci=SECOND),))
    assert recalled(wanted, listed, []).devices == tuple(listed)


def test_what_is_offered_in_case_that_nothing_is_published_gives_way_to_what_is() -> None:
    plain = Device("gpu-vfio", FIRST, {"type": "vfio"})
    counting = replace(plain, counter_set="gpu", consumes={"gpu": 1})
    counters = CounterSet("gpu", FIRST, {"gpu": 1})
    wanted = Offers((plain,), (), doubts=(AWAY,))
    assert recalled(wanted, [], []).devices == (plain,)
    found = recalled(wanted, [counting], [counters])
    assert (found.devices, found.counter_sets) == ((counting,), (counters,))


def test_while_a_gpu_is_away_the_others_say_of_their_neighbors_what_they_said() -> None:
    before = Device("gpu-b", SECOND, {"uuid": "GPU-b", "index": 1, "nvlinkPeers": "0", "numaNode": 0})
    now = replace(before, attributes={"uuid": "GPU-b", "index": 0, "numaNode": 1})
    [kept] = recalled_of([now], [before], AWAY)
    assert kept.attributes == {"uuid": "GPU-b", "index": 1, "nvlinkPeers": "0", "numaNode": 1}
    assert recalled_of([now], [before], replace(AWAY, away=False)) == (now,)
    other = replace(before, attributes={**before.attributes, "uuid": "GPU-x"})
    assert recalled_of([now], [other], AWAY) == (now,)


def test_a_promise_of_memory_is_recalled_only_while_nobody_could_ask() -> None:
    before = Device("gpu-a-ts-4", FIRST, {"uuid": "a", "memoryLimits": "cgroup", "memoryIsolation": "cgroup"})
    unanswered = replace(before, attributes={"uuid": "a"})
    older = replace(before, attributes={"uuid": "a", "memoryIsolation": "none"})
    doubt = Doubt(FIRST, whole=False, taints=())

    [kept] = recalled_of([unanswered], [before], replace(doubt, limits=True))
    [ended] = recalled_of([older], [before], doubt)

    assert kept.attributes == before.attributes
    assert ended.attributes == older.attributes
