"""Metrics count each offered device once, by what keeps it from being handed out."""

from collections import Counter
from dataclasses import replace

from controller.publish.device_metrics import offered_numbers, sick_numbers
from driver.devices.taints import TAINT_XID
from tests.controller.mig_node import inventory
from tests.gpus import TAINT_BLOCKED, TAINT_RESET, Device, Taint, node_offers, parse_config

RULES = """version: v1
rules:
  - when: gpu.index == 0
    mig: dynamic
  - when: gpu.index == 1
    shared: {strategy: TimeSlicing, shares: 4}
  - offer: whole
"""
States = Counter[tuple[str, str, str]]


EIGHT = node_offers(inventory(gpus=8), parse_config(RULES, "rules")).devices
"""The devices of eight H100: one also as partitions, one shared, six whole."""


def states(devices: tuple[Device, ...], *held: str) -> States:
    found: States = Counter()
    for one in offered_numbers(devices, frozenset(held)):
        key = one.labels["kind"], one.labels["profile"], one.labels["state"]
        found[key] += int(one.value)
    return found


def named(devices: tuple[Device, ...], *parts: str) -> Device:
    return next(one for one in devices if all(part in one.name for part in parts))


def tainted(device: Device, *taints: Taint) -> Device:
    return replace(device, taints=taints)


def test_each_is_free_allocated_or_excluded_by_what_a_claim_has_in_its_place() -> None:
    partition = named(EIGHT, "mig-1g-10gb-0")

    free, found = states(EIGHT), states(EIGHT, partition.name)

    assert {state for _, _, state in free} == {"free"}
    assert free.total() == found.total() == len(EIGHT)
    assert (free["time-slicing", "", "free"], free["partition", "1g.10gb", "free"]) == (1, 7)
    assert found["partition", "1g.10gb", "allocated"] == 1
    assert found["partition", "1g.10gb", "free"] == 6
    assert (found["partition", "3g.40gb", "excluded"], found["partition", "3g.40gb", "free"]) == (1, 1)
    assert found["whole", "", "excluded"] == 1


def test_a_taint_that_keeps_pods_away_leads_and_one_that_only_tells_does_not() -> None:
    first, second, *_ = (one for one in EIGHT if one.attributes["type"] == "gpu")
    away = tainted(first, Taint(TAINT_RESET, "", "NoSchedule"))
    told = tainted(second, Taint(TAINT_XID, "43", "None"))

    found = states((away, told), away.name, told.name)

    assert found == {("whole", "", "tainted"): 1, ("whole", "", "allocated"): 1}


def told(devices: list[Device]) -> list[dict[str, str]]:
    return [dict(one.labels) for one in sick_numbers(devices)]


def test_a_fault_is_told_once_however_many_forms_of_the_gpu_have_it() -> None:
    first = [one for one in EIGHT if one.pci == EIGHT[0].pci]
    xid, blocked = Taint(TAINT_XID, "94", "NoSchedule"), Taint(TAINT_BLOCKED, "in-use", "NoSchedule")
    assert len(first) > 1
    assert told(list(EIGHT)) == []

    (found,) = told([replace(one, taints=(xid, blocked)) for one in first])

    (whole,) = (one for one in first if one.attributes["type"] == "gpu")
    assert found == {
        "uuid": whole.attributes["uuid"],
        "pci_bus_id": str(whole.pci),
        "key": TAINT_XID,
        "value": "94",
        "effect": "NoSchedule",
    }
