"""Counter sets stand in slices of their own, and no device consumes what is not there."""

from dataclasses import replace
from typing import Any

import pytest

from driver.slices.specs import Layout, read_devices
from tests.driver.kinds.passthrough.seen_nodes import FIRST, SECOND, function, node, offered
from tests.gpus import CounterSet, Device, PciAddress, Placement, Taint, Version, gpu_device_name, lay_out

POOL = "node-a/gpu.nvidia.com"


def pci(number: int) -> PciAddress:
    return PciAddress(0, number, 0, 0)


def counter_set(number: int = 0, **fields: Any) -> CounterSet:
    counters = {"memory-slice-0": 1, "memory-slice-1": 1}
    return CounterSet(
        **{"name": gpu_device_name(pci(number)), "pci": pci(number), "counters": counters, **fields}
    )


def partition(number: int = 0, **fields: Any) -> Device:
    gpu = gpu_device_name(pci(number))
    given = {"span": Placement(0, 1), "counter_set": gpu, "consumes": {"memory-slice-0": 1}}
    return Device(f"{gpu}-mig-1g-10gb-0", pci(number), **{**given, **fields})


def laid_out(devices: list[Device], counter_sets: list[CounterSet]) -> Layout:
    return lay_out(devices, pool=POOL, node="node-a", counter_sets=counter_sets)


def test_counter_sets_come_first_in_slices_of_their_own() -> None:
    layout = laid_out([partition()], [counter_set()])

    head = {"driver": "gpu.nvidia.com", "nodeName": "node-a", "pool": {"name": POOL, "resourceSliceCount": 2}}
    taken = {"memory-slice-0": {"value": "1"}}
    counters = {"name": "gpu-0000-00-00-0", "counters": {**taken, "memory-slice-1": {"value": "1"}}}
    consumes = [{"counterSet": "gpu-0000-00-00-0", "counters": taken}]
    devices = [{"name": "gpu-0000-00-00-0-mig-1g-10gb-0", "consumesCounters": consumes}]
    assert layout.specs == ({**head, "sharedCounters": [counters]}, {**head, "devices": devices})


@pytest.mark.parametrize(("gpus", "sizes"), [(8, [8]), (9, [8, 1]), (17, [8, 8, 1])])
def test_a_slice_has_at_most_8_counter_sets(gpus: int, sizes: list[int]) -> None:
    layout = laid_out([partition(n) for n in range(gpus)], [counter_set(n) for n in range(gpus)])

    assert [len(spec["sharedCounters"]) for spec in layout.specs if "sharedCounters" in spec] == sizes
    assert [list(spec)[-1] for spec in layout.specs] == ["sharedCounters"] * len(sizes) + ["devices"]
    assert {spec["pool"]["resourceSliceCount"] for spec in layout.specs} == {len(sizes) + 1}


def test_a_counter_set_that_nobody_uses_is_left_out() -> None:
    layout = laid_out([partition(0)], [counter_set(0), counter_set(1)])

    assert [one["name"] for one in layout.specs[0]["sharedCounters"]] == ["gpu-0000-00-00-0"]
    assert laid_out([], [counter_set()]).specs == laid_out([], []).specs


@pytest.mark.parametrize(
    ("device", "sets", "reason"),
    [
        (partition(), [], "counter set 'gpu-0000-00-00-0' does not exist"),
        (partition(), [counter_set(1)], "counter set 'gpu-0000-00-00-0' does not exist"),
        (partition(counter_set=""), [counter_set()], "consumed without a counter set"),
        (partition(consumes={"x": 1}), [counter_set()], "counter 'x' is not in counter set"),
        (partition(consumes={}), [counter_set()], "0 counters, not 1 to 32"),
        (partition(consumes={"memory-slice-0": 2**63}), [counter_set()], "does not fit in 64 bits"),
        (partition(), [counter_set(counters={})], "does not exist"),
        (partition(), [counter_set(counters={f"memory-slice-{n}": 1 for n in range(33)})], "does not exist"),
        (partition(), [counter_set(counters={"memory-slice-0": 1, "Bad_Name": 1})], "does not exist"),
        (partition(), [counter_set(counters={"memory-slice-0": 2**63})], "does not exist"),
        (
            partition(counter_set="Bad_Name"),
            [counter_set(name="Bad_Name")],
            "counter set 'Bad_Name' does not exist",
        ),
    ],
)
def test_a_device_whose_counters_cannot_stand_is_left_out_alone(
    device: Device, sets: list[CounterSet], reason: str
) -> None:
    plain = partition(5, counter_set="", consumes={})

    layout = laid_out([device, plain], sets)

    [rejected] = layout.rejected
    assert rejected.device == device
    assert reason in "; ".join(rejected.reasons)
    assert [[one["name"] for one in spec.get("devices", [])] for spec in layout.specs] == [[plain.name]]


def test_what_was_published_is_read_back() -> None:
    device = partition(
        attributes={"b": False, "i": 0, "s": "", "v": Version("1.2.3")},
        capacity={"memory": 80 * 2**30, "decoders": 0},
        taints=(Taint("gpu.nvidia.com/blocked", "in-use", "NoSchedule"), Taint("k", "", "None")),
    )

    assert read_devices(laid_out([device], [counter_set()]).specs) == ((device,), (counter_set(),))


def test_what_is_not_named_by_this_driver_is_not_read() -> None:
    foreign: dict[str, Any] = {
        "devices": [{"name": "gpu-0"}, {"name": "gpu-0000-00-00-0", "attributes": {"l": {"bools": [True]}}}],
        "sharedCounters": None,
    }

    devices, counter_sets = read_devices([foreign, {"sharedCounters": [{"name": "gpu-0-counter-set"}]}])

    assert devices == (Device("gpu-0000-00-00-0", pci(0)),)
    assert counter_sets == ()


def test_a_device_that_takes_from_two_counter_sets_is_written_and_read_back() -> None:
    found = offered(
        node(function(FIRST, iommu_group=7), function(SECOND, iommu_group=7)), "passthrough: true"
    )
    layout = lay_out(found.devices, pool="node/gpu.nvidia.com", node="node", counter_sets=found.counter_sets)
    assert layout.rejected == ()
    [both] = [one for spec in layout.specs for one in spec.get("devices", ()) if "vfio" in one["name"]]
    assert both["consumesCounters"] == [
        {"counterSet": "gpu-0000-1b-00-0", "counters": {"gpu": {"value": "1"}}},
        {"counterSet": "gpu-0000-43-00-0", "counters": {"gpu": {"value": "1"}}},
    ]
    assert read_devices(layout.specs) == (found.devices, found.counter_sets)


def test_a_device_that_takes_from_more_sets_than_the_api_knows_is_left_out() -> None:
    sets = [CounterSet(f"set-{number}", FIRST, {"gpu": 1}) for number in range(3)]
    more = {"set-1": {"gpu": 1}, "set-2": {"gpu": 1}}
    device = Device("gpu-vfio", FIRST, counter_set="set-0", consumes={"gpu": 1}, more_consumes=more)
    [rejected] = lay_out([device], pool="node/gpu.nvidia.com", node="node", counter_sets=sets).rejected
    assert rejected.reasons == ("counters of 3 sets are consumed, more than 2",)
    gone = replace(device, more_consumes={"set-9": {"gpu": 1}})
    [rejected] = lay_out([gone], pool="node/gpu.nvidia.com", node="node", counter_sets=sets).rejected
    assert rejected.reasons == ("counter set 'set-9' does not exist",)
