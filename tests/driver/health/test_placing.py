"""Verdicts become taints of the devices that they hit, and stored taints become incidents again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.devices.device import Device, Taint
from driver.devices.region import Region
from driver.health.health_rules import HealthRules
from driver.health.placing import TaintedDevice, incidents_in, with_verdicts
from driver.health.xid_verdicts import Incident, verdicts_of
from driver.health.xids import XID_CLASSES, XidClass
from driver.nvml.mig import Placement
from driver.nvml.pci_address import PciAddress

PCI = PciAddress.parse("0000:8a:00.0")
OTHER = PciAddress.parse("0000:8b:00.0")
RULES = HealthRules()
SPANS = [Placement(start, size) for size in (1, 2, 4, 8) for start in range(0, 8, size)]


def forms(pci: PciAddress) -> list[Device]:
    """A GPU whole and in all of its partitions."""
    parts = [Device(f"{pci}-{span.start}-{span.size}", pci, span=span) for span in SPANS]
    return [Device(f"{pci}", pci), *parts]


def tainted(incidents: Iterable[Incident], devices: list[Device]) -> tuple[Device, ...]:
    worst_first = sorted(incidents, key=lambda one: (-XID_CLASSES.index(one.xid_class(RULES)), str(one)))
    found = [verdict for one in worst_first for verdict in verdicts_of(one, RULES)]
    return with_verdicts(devices, found)


def stored(devices: tuple[Device, ...]) -> list[TaintedDevice]:
    return [
        TaintedDevice(device.regions, device.taints, {taint.key: 77.0 for taint in device.taints})
        for device in devices
    ]


def test_a_fault_of_a_gpu_is_on_all_of_its_forms_and_on_no_other_gpu() -> None:
    found = tainted([Incident(Region(PCI), 95)], [*forms(PCI), *forms(OTHER)])
    assert all(bool(device.taints) == (device.pci == PCI) for device in found)


def test_a_fault_of_a_partition_is_on_it_and_on_what_lies_over_it() -> None:
    found = tainted([Incident(Region(PCI, Placement(2, 2)), 94)], forms(PCI))
    hit = {device.span for device in found if device.taints}
    assert hit == {None, *(Placement(*one) for one in ((2, 1), (3, 1), (2, 2), (0, 4), (0, 8)))}


def test_a_device_has_each_key_once_and_what_is_worse_stays() -> None:
    device = Device("gpu", PCI, taints=(Taint("gpu.nvidia.com/needs-reset", "call", "None"),))
    (found,) = tainted([Incident(Region(PCI), 95)], [device])
    assert [(taint.key, taint.effect) for taint in found.taints] == [
        ("gpu.nvidia.com/xid", "NoSchedule"),
        ("gpu.nvidia.com/needs-reset", "NoSchedule"),
    ]


def test_taints_of_others_stay_where_they_are() -> None:
    device = Device("gpu", PCI, taints=(Taint("gpu.nvidia.com/changing", "", "NoSchedule"),))
    (found,) = tainted([Incident(Region(PCI), 94)], [device])
    assert [taint.key for taint in found.taints] == ["gpu.nvidia.com/xid", "gpu.nvidia.com/changing"]


def test_what_is_asked_for_at_each_look_is_not_taken_over() -> None:
    taints = (
        Taint("gpu.nvidia.com/needs-reset", "drain-and-reset", "NoSchedule"),
        Taint("gpu.nvidia.com/gpu-lost", "nvmlDeviceGetUUID", "NoSchedule"),
        Taint("gpu.nvidia.com/xid", "no-number", "NoSchedule"),
    )
    assert incidents_in([TaintedDevice((Region(PCI),), taints, {})]) == ()


def test_the_class_that_the_driver_told_is_taken_over_with_its_time() -> None:
    incident = Incident(Region(PCI), 94, "needs-reset")
    assert incidents_in(stored(tainted([incident], forms(PCI)))) == (
        (Incident(Region(PCI), 94, "needs-reset"), 77.0),
    )


def test_a_fault_without_an_xid_is_taken_over() -> None:
    incident = Incident(Region(PCI), None, "needs-reset")
    assert incidents_in(stored(tainted([incident], forms(PCI)))) == (
        (Incident(Region(PCI), None, "needs-reset"), 77.0),
    )


regions = st.builds(Region, st.sampled_from([PCI, OTHER]), st.none() | st.sampled_from(SPANS))
incidents = st.builds(
    Incident,
    regions,
    st.none() | st.sampled_from([31, 48, 79, 94, 95, 119, 9999]),
    st.none() | st.sampled_from(XID_CLASSES),
)
offers = st.sets(st.none() | st.sampled_from(SPANS), min_size=1)


def restarted(
    happened: list[Incident], offered: set[Placement | None]
) -> tuple[tuple[Device, ...], tuple[Device, ...]]:
    """The devices of two GPUs as the controller published them, and as the next one does that reads them."""
    offered = offered | {one.scope.span for one in happened if one.scope.span}
    devices = [device for pci in (PCI, OTHER) for device in forms(pci) if device.span in offered]
    before = tainted(happened, devices)
    return before, tainted((incident for incident, _ in incidents_in(stored(before))), devices)


@pytest.mark.parametrize("told", [None, *XID_CLASSES])
@given(incident=incidents, offered=offers)
def test_after_a_restart_the_same_devices_have_the_same_taints(
    told: XidClass | None, incident: Incident, offered: set[Placement | None]
) -> None:
    before, after = restarted([replace(incident, reported_class=told)], offered)

    assert after == before


@given(happened=st.lists(incidents, min_size=2, max_size=3), offered=offers)
def test_of_several_faults_none_ends_with_a_restart(
    happened: list[Incident], offered: set[Placement | None]
) -> None:
    """Where one taint hides another, a device may be worse off after it, but not better."""
    before, after = restarted(happened, offered)

    for then, now in zip(before, after, strict=True):
        assert {taint.key for taint in then.taints} <= {taint.key for taint in now.taints}


def test_what_a_worse_fault_of_a_partition_hides_does_not_end_with_a_restart() -> None:
    happened = [Incident(Region(PCI), 94), Incident(Region(PCI, SPANS[0]), 48)]
    before, after = restarted(happened, {None, *SPANS[:3]})

    assert after == before
