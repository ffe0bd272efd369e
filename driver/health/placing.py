"""Puts verdicts on the devices that they hit, and reads faults back from stored taints. Pure.

An XID cannot be read from NVML later. The taints in the stored slices are the memory of a controller that
starts again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from driver.devices.device import Device, Taint
from driver.devices.region import Region, overlap
from driver.devices.taints import TAINT_REBOOT, TAINT_RESET, TAINT_XID
from driver.health.verdict import Verdict, merged
from driver.health.xid_verdicts import OPERATIONAL, XID_VALUE, Incident
from driver.health.xids import MOST_XID, XidClass
from driver.nvml.pci_address import PciAddress

_CLASS_BY_TAINT: Mapping[str, XidClass] = {TAINT_RESET: "needs-reset", TAINT_REBOOT: "needs-reboot"}


def with_verdicts(devices: Sequence[Device], verdicts: Sequence[Verdict]) -> tuple[Device, ...]:
    """The devices, each with the taints of the verdicts that hit it.

    A verdict about a GPU hits all devices of that GPU. One about a partition hits all devices that overlap
    it.
    """
    if not verdicts:
        return tuple(devices)
    return tuple(_tainted(device, verdicts) for device in devices)


def _tainted(device: Device, verdicts: Sequence[Verdict]) -> Device:
    found = [one.taint for one in verdicts if overlap(device.regions, (one.scope,))]
    return replace(device, taints=merged((*found, *device.taints))) if found else device


@dataclass(frozen=True, slots=True)
class TaintedDevice:
    """A stored device with its taints, and the age of the oldest one."""

    regions: tuple[Region, ...]
    taints: tuple[Taint, ...]
    age_seconds: float


def incidents_in(stored: Iterable[TaintedDevice]) -> tuple[tuple[Incident, float], ...]:
    """The incidents in stored taints, each with its age in seconds.

    Faults that every check reads from NVML again are not among them.
    """
    by_gpu: dict[PciAddress, list[TaintedDevice]] = {}
    for device in stored:
        for pci in dict.fromkeys(region.pci for region in device.regions):
            by_gpu.setdefault(pci, []).append(device)
    return tuple(found for pci, devices in sorted(by_gpu.items()) for found in _of_gpu(pci, devices))


@dataclass(frozen=True, slots=True)
class _Fault:
    xid: int | None
    reported_class: XidClass | None


def _of_gpu(pci: PciAddress, devices: Sequence[TaintedDevice]) -> list[tuple[Incident, float]]:
    hit: dict[_Fault, list[TaintedDevice]] = {}
    for device in devices:
        for fault in faults_of(device.taints):
            hit.setdefault(fault, []).append(device)
    return [
        (Incident(scope, fault.xid, fault.reported_class), max(one.age_seconds for one in found))
        for fault, found in hit.items()
        for scope in _scopes(pci, found, [one for one in devices if one not in found])
    ]


def faults_of(taints: Iterable[Taint]) -> tuple[_Fault, ...]:
    """The faults in these taints that NVML does not report a second time."""
    classes: dict[int | None, XidClass | None] = {}
    for taint in taints:
        if taint.key == TAINT_XID and (xid := _code(taint.value)) is not None:
            classes.setdefault(xid, None)
        elif taint.key in _CLASS_BY_TAINT and taint.value == OPERATIONAL:
            classes[None] = _CLASS_BY_TAINT[taint.key]
        # The class is taken from the taint: the event or an admin's table may have decided it, not the XID.
        elif taint.key in _CLASS_BY_TAINT and taint.value.startswith(XID_VALUE):
            xid = _code(taint.value.removeprefix(XID_VALUE))
            if xid is not None:
                classes[xid] = _CLASS_BY_TAINT[taint.key]
    return tuple(_Fault(xid, found) for xid, found in classes.items())


def _code(text: str) -> int | None:
    # int() accepts other digits than ASCII and spaces, and another driver may have written the taint.
    if not (text.isascii() and text.isdigit()):
        return None
    return int(text) if 0 < int(text) <= MOST_XID else None


def _scopes(pci: PciAddress, hit: Sequence[TaintedDevice], spared: Sequence[TaintedDevice]) -> list[Region]:
    """The regions that were hit, chosen so that they hit the same devices again.

    If no device was spared, it is the whole GPU. Otherwise it is the smallest partition that overlaps every
    device that was hit and none that was spared; if there is none, each partition that was hit.
    """
    if not spared:
        return [Region(pci)]
    # Stored partitions have the span that their counters give, so the same partitions can be found again.
    spans = {region.span for device in hit for region in device.regions if region.pci == pci}
    partitions = [
        Region(pci, span)
        for span in sorted((one for one in spans if one), key=lambda one: (one.size, one.start))
    ]
    free = [one for one in partitions if not any(overlap(device.regions, (one,)) for device in spared)]
    for one in free:
        if all(overlap(device.regions, (one,)) for device in hit):
            return [one]
    return free or partitions[:1] or [Region(pci)]
