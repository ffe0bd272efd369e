"""Verdicts become taints of the devices that they hit."""

from tests.gpus import (
    Device,
    HealthRules,
    Incident,
    PciAddress,
    Placement,
    Region,
    Taint,
    verdicts_of,
    with_verdicts,
)

PCI = PciAddress.parse("0000:8a:00.0")
OTHER = PciAddress.parse("0000:8b:00.0")
SPANS = [Placement(start, size) for size in (1, 2, 4, 8) for start in range(0, 8, size)]


def forms(pci: PciAddress) -> list[Device]:
    """A GPU whole and in all of its partitions."""
    parts = [Device(f"{pci}-{span.start}-{span.size}", pci, span=span) for span in SPANS]
    return [Device(f"{pci}", pci), *parts]


def tainted(incident: Incident, devices: list[Device]) -> tuple[Device, ...]:
    return with_verdicts(devices, verdicts_of(incident, HealthRules()))


def test_a_fault_of_a_gpu_is_on_all_of_its_forms_and_on_no_other_gpu() -> None:
    found = tainted(Incident(Region(PCI), 95), [*forms(PCI), *forms(OTHER)])
    assert all(bool(device.taints) == (device.pci == PCI) for device in found)


def test_a_device_of_several_gpus_is_hit_by_a_fault_of_any() -> None:
    pair = Device("pair", OTHER, more_regions=(Region(PCI),))
    assert tainted(Incident(Region(PCI), 95), [pair])[0].taints


def test_a_fault_of_a_partition_is_on_it_and_on_what_lies_over_it() -> None:
    found = tainted(Incident(Region(PCI, Placement(2, 2)), 94), forms(PCI))
    hit = {device.span for device in found if device.taints}
    assert hit == {None, *(Placement(*one) for one in ((2, 1), (3, 1), (2, 2), (0, 4), (0, 8)))}


def test_a_device_has_each_key_once_and_what_is_worse_stays() -> None:
    device = Device("gpu", PCI, taints=(Taint("gpu.nvidia.com/needs-reset", "call", "None"),))
    (found,) = tainted(Incident(Region(PCI), 95), [device])
    keys = ("gpu.nvidia.com/xid", "gpu.nvidia.com/needs-reset")
    assert [(taint.key, taint.effect) for taint in found.taints] == [(key, "NoSchedule") for key in keys]


def test_taints_of_others_stay_where_they_are() -> None:
    device = Device("gpu", PCI, taints=(Taint("gpu.nvidia.com/changing", "", "NoSchedule"),))
    (found,) = tainted(Incident(Region(PCI), 94), [device])
    assert [taint.key for taint in found.taints] == ["gpu.nvidia.com/xid", "gpu.nvidia.com/changing"]
