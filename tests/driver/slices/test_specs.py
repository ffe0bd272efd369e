"""Devices become specs within the limits of the API; a device that breaks one is left out alone."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.slices.specs import Layout, taint_times
from tests.clusters import Object
from tests.gpus import AttributeValue, ConfigError, Device, PciAddress, Taint, Version, lay_out

POOL = "node-a/gpu.nvidia.com"


def device(number: int = 0, **fields: Any) -> Device:
    pci = PciAddress(0, number, 0, 0)
    return Device(**{"name": f"gpu-{number:03d}", "pci": pci, **fields})


def laid_out(*devices: Device) -> Layout:
    return lay_out(devices, pool=POOL, node="node-a")


def test_a_spec_has_the_form_of_the_api() -> None:
    attributes: dict[str, AttributeValue] = {"b": True, "i": 7, "s": "text", "v": Version("1.2.3")}
    taints = (Taint("gpu.nvidia.com/gpu-lost", "", "NoSchedule"),)

    layout = laid_out(device(attributes=attributes, capacity={"memory": 80 * 2**30}, taints=taints))

    said = {
        "name": "gpu-000",
        "attributes": {
            "b": {"bool": True},
            "i": {"int": 7},
            "s": {"string": "text"},
            "v": {"version": "1.2.3"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
        "taints": [{"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"}],
    }
    head = {"driver": "gpu.nvidia.com", "nodeName": "node-a", "pool": {"name": POOL, "resourceSliceCount": 1}}
    assert layout.rejected == ()
    assert layout.specs == ({**head, "devices": [said]},)


def test_a_node_without_devices_has_one_empty_slice() -> None:
    [spec] = laid_out().specs

    assert "devices" not in spec
    assert spec["pool"]["resourceSliceCount"] == 1


@pytest.mark.parametrize(("devices", "sizes"), [(64, [64]), (65, [64, 1]), (130, [64, 64, 2])])
def test_a_slice_has_at_most_64_devices_in_the_order_given(devices: int, sizes: list[int]) -> None:
    layout = laid_out(*(device(number) for number in reversed(range(devices))))

    assert [len(spec["devices"]) for spec in layout.specs] == sizes
    assert {spec["pool"]["resourceSliceCount"] for spec in layout.specs} == {len(sizes)}
    names = [one["name"] for spec in layout.specs for one in spec["devices"]]
    assert names == [f"gpu-{number:03d}" for number in reversed(range(devices))]


def numbered(prefix: str, count: int) -> dict[str, int]:
    return {f"{prefix}{number}": number for number in range(count)}


FAULTS: dict[str, Object] = {
    "a name in upper case": {"name": "GPU-0"},
    "a name that is too long": {"name": "g" * 64},
    "more than 32 attributes": {"attributes": numbered("a", 33)},
    "more than 32 attributes and capacities": {"attributes": numbered("a", 30), "capacity": numbered("c", 3)},
    "an attribute name with a dash": {"attributes": {"a-b": 1}},
    "an attribute name that is too long": {"attributes": {"a" * 33: 1}},
    "an attribute with a bad domain": {"attributes": {"Bad_Domain/a": 1}},
    "an attribute with two slashes": {"attributes": {"a/b/c": 1}},
    "an attribute with and without our domain": {"attributes": {"a": 1, "gpu.nvidia.com/a": 1}},
    "a capacity with and without our domain": {"capacity": {"a": 1, "gpu.nvidia.com/a": 1}},
    "a string that is too long": {"attributes": {"a": "x" * 65}},
    "a string with too many bytes": {"attributes": {"a": "ü" * 33}},
    "a version with a leading zero": {"attributes": {"a": Version("550.163.01")}},
    "a version of two numbers": {"attributes": {"a": Version("12.4")}},
    "an integer beyond 64 bits": {"attributes": {"a": 2**63}},
    "a capacity beyond 64 bits": {"capacity": {"a": 2**63}},
    "more than 16 taints": {"taints": tuple(Taint(f"k{n}", "", "None") for n in range(17))},
    "a taint key that is no label": {"taints": (Taint("a b", "", "None"),)},
    "a taint value that is no label": {"taints": (Taint("a", "-b", "None"),)},
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_device_that_breaks_a_limit_is_left_out_alone(fault: Object) -> None:
    bad = device(1, **fault)

    layout = laid_out(device(0), bad, device(2))

    assert [one["name"] for one in layout.specs[0]["devices"]] == ["gpu-000", "gpu-002"]
    [rejected] = layout.rejected
    assert rejected.device is bad
    assert len(rejected.reasons) == 1


def test_of_two_devices_with_one_name_the_first_stays() -> None:
    first, second = device(0), replace(device(1), name="gpu-000")

    layout = laid_out(first, second)

    assert len(layout.specs[0]["devices"]) == 1
    assert [rejected.device for rejected in layout.rejected] == [second]


def test_a_pool_that_can_have_no_name_is_an_error() -> None:
    with pytest.raises(ConfigError, match="--node-name"):
        lay_out([], pool="Node A/gpu.nvidia.com", node="Node A")


VALUES: st.SearchStrategy[AttributeValue] = st.one_of(
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.text(max_size=80),
    st.builds(Version, st.from_regex(r"[0-9]{1,3}\.[0-9]{1,3}(\.[0-9]{1,3})?", fullmatch=True)),
)
KEYS = st.one_of(
    st.text("abAB_0-./", max_size=40),
    st.from_regex(r"[a-z]{1,5}", fullmatch=True),
    st.from_regex(r"(gpu\.nvidia\.com/)?[a-c]", fullmatch=True),
)
DEVICES = st.builds(
    Device,
    name=st.one_of(st.from_regex(r"[a-z][a-z0-9-]{0,5}", fullmatch=True), st.text(max_size=70)),
    pci=st.builds(PciAddress, st.just(0), st.integers(0, 255), st.just(0), st.just(0)),
    attributes=st.dictionaries(KEYS, VALUES, max_size=40),
    capacity=st.dictionaries(KEYS, st.integers(-(2**70), 2**70), max_size=10),
    taints=st.lists(
        st.builds(Taint, st.text("ab/-", max_size=4), st.text("ab-", max_size=3), st.just("None")),
        max_size=20,
    ).map(tuple),
)


@given(st.lists(DEVICES, max_size=8))
def test_whatever_devices_there_are_each_is_published_or_rejected_and_limits_hold(
    devices: list[Device],
) -> None:
    layout = lay_out(devices, pool=POOL, node="node-a")

    published = [one for spec in layout.specs for one in spec.get("devices", [])]
    assert len(published) + len(layout.rejected) == len(devices)
    assert all(rejected.reasons for rejected in layout.rejected)
    assert len({one["name"] for one in published}) == len(published)
    for one in published:
        attributes, capacity = one.get("attributes", {}), one.get("capacity", {})
        assert len(attributes) + len(capacity) <= 32
        assert len(one.get("taints", [])) <= 16
        assert len({name.removeprefix("gpu.nvidia.com/") for name in attributes}) == len(attributes)
        for value in attributes.values():
            [(kind, content)] = value.items()
            assert kind == "int" or len(str(content).encode()) <= 64


def stored(spec: Object) -> Object:
    """The spec as a server would store it."""
    result = copy.deepcopy(spec)
    result["pool"]["generation"] = 4
    for one in result.get("devices", []):
        for taint in one.get("taints", []):
            taint["timeAdded"] = "2026-11-21T00:00:00Z"
    return result


FULL = device(attributes={"a": 0}, capacity={"memory": 2**30}, taints=(Taint("k", "v", "NoSchedule"),))


def test_a_taint_that_went_and_came_back_is_a_new_one() -> None:
    [spec] = laid_out(FULL).specs
    times = taint_times([spec], [stored(spec)], {})
    well = {**spec, "devices": [{**one, "taints": []} for one in spec["devices"]]}

    assert times
    assert taint_times([spec], [well], taint_times([well], [stored(spec)], times)) == {}
