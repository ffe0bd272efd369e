"""A device that has several GPUs takes from the counters of each of them."""

from __future__ import annotations

from dataclasses import replace

from driver.devices.device import CounterSet, Device
from driver.slices.specs import lay_out, read_devices
from tests.driver.kinds.passthrough.seen_nodes import FIRST, SECOND, function, node, offered


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
    device = Device(
        "gpu-0000-1b-00-0-vfio",
        FIRST,
        counter_set="set-0",
        consumes={"gpu": 1},
        more_consumes={"set-1": {"gpu": 1}, "set-2": {"gpu": 1}},
    )
    [rejected] = lay_out([device], pool="node/gpu.nvidia.com", node="node", counter_sets=sets).rejected
    assert rejected.reasons == ("counters of 3 sets are consumed, more than 2",)
    gone = replace(device, more_consumes={"set-9": {"gpu": 1}})
    [rejected] = lay_out([gone], pool="node/gpu.nvidia.com", node="node", counter_sets=sets).rejected
    assert rejected.reasons == ("counter set 'set-9' does not exist",)
