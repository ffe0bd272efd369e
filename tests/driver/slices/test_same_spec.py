"""A stored slice means the same as the wanted one however it is written, and what is changed in it counts."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from driver.slices.specs import same_spec
from tests.gpus import CounterSet, Device, PciAddress, RequestPolicy, Taint, lay_out

GIB = 2**30
PCI = PciAddress(0, 0, 0, 0)
POLICIES = {"shares": RequestPolicy(1, 1, 1), "memory": RequestPolicy(20 * GIB, 5 * GIB, 5 * GIB)}
TAINTS = (Taint("k", "v", "NoSchedule"),)
DEVICES = (
    Device("full", PCI, attributes={"a": 0, "b": False}, capacity={"memory": GIB}, taints=TAINTS),
    Device("shared", PCI, capacity={"shares": 4, "memory": 80 * GIB}, policies=POLICIES),
    Device("fixed", PCI, capacity={"memory": GIB}, policies={"memory": RequestPolicy(0)}),
    Device("part", PCI, counter_set="gpu", consumes={"slice": 2048}),
)
COUNTERS, SPEC = lay_out(
    DEVICES, pool="node/gpu.nvidia.com", node="node", counter_sets=[CounterSet("gpu", PCI, {"slice": 2048})]
).specs
Path = tuple[str | int, ...]


def leaves(node: Any, at: Path = ()) -> Iterator[Path]:
    """Where all fields of a document are, of those inside as well."""
    for key, inside in node.items() if isinstance(node, dict) else enumerate(node):
        yield (*at, key)
        if isinstance(inside, dict | list):
            yield from leaves(inside, (*at, key))


def changed(spec: Any, path: Path, *value: Any) -> Any:
    """A copy in which one field has a value, or is not there."""
    result = copy.deepcopy(spec)
    holder = result
    for key in path[:-1]:
        holder = holder[key]
    if value:
        holder[path[-1]] = value[0]
    else:
        del holder[path[-1]]
    return result


@pytest.mark.parametrize("spec", [COUNTERS, SPEC], ids=["counters", "devices"])
def test_any_field_that_somebody_changed_or_took_away_is_a_difference(spec: Any) -> None:
    assert same_spec(spec, copy.deepcopy(spec))
    for path in leaves(spec):
        assert not same_spec(spec, changed(spec, path)), path
        value = spec
        for key in path:
            value = value[key]
        other = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else "foreign"
        if not isinstance(value, dict | list):
            assert not same_spec(spec, changed(spec, path, other)), path


MEMORY: Path = ("devices", 1, "capacity", "memory", "requestPolicy")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("sharedCounters",), [{"name": "foreign"}]),
        (("devices", 0, "attributes", "c"), {"string": "foreign"}),
        (("devices", 0, "capacity", "memory", "value"), "2Gi"),
        ((*MEMORY, "default"), "15Gi"),
        ((*MEMORY, "validRange", "max"), "40Gi"),
        ((*MEMORY, "validValues"), ["20Gi"]),
        (("devices", 2, "capacity", "memory", "requestPolicy", "validValues"), ["0", "1Gi"]),
        (("devices",), [*SPEC["devices"], {"name": "foreign"}]),
        (("devices",), SPEC["devices"][::-1]),
    ],
)
def test_what_somebody_added_or_moved_is_a_difference(path: Path, value: Any) -> None:
    assert not same_spec(SPEC, changed(SPEC, path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("allNodes",), False),
        (("pool", "generation"), 4),
        (("devices", 0, "taints", 0, "timeAdded"), "2026-11-21T00:00:00Z"),
        (("devices", 0, "capacity", "memory", "value"), "1024Mi"),
        (("devices", 1, "capacity", "shares", "value"), "4000m"),
        ((*MEMORY, "default"), "20480Mi"),
        ((*MEMORY, "validRange", "min"), "5368709120"),
        ((*MEMORY, "validRange", "step"), 5 * GIB),
        ((*MEMORY, "validRange", "max"), None),
        ((*MEMORY, "validValues"), []),
        (("devices", 2, "capacity", "memory", "requestPolicy", "validValues"), ["0Gi"]),
        (("devices", 3, "consumesCounters", 0, "counters", "slice", "value"), "2048"),
    ],
)
def test_what_is_written_in_another_way_or_filled_in_is_no_difference(path: Path, value: Any) -> None:
    assert same_spec(SPEC, changed(SPEC, path, value))


def test_counters_written_in_another_way_are_the_same() -> None:
    path = ("sharedCounters", 0, "counters", "slice", "value")
    assert COUNTERS["sharedCounters"][0]["counters"]["slice"]["value"] == "2Ki"
    assert same_spec(COUNTERS, changed(COUNTERS, path, "2048"))
