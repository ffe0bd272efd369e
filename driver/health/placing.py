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
_TAINTS: Mapping[XidClass | None, str] = {xid_class: key for key, xid_class in _CLASS_BY_TAINT.items()}


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
    """A stored device with its taints, and their ages in seconds, by key."""

    regions: tuple[Region, ...]
    taints: tuple[Taint, ...]
    ages: Mapping[str, float]


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
    # None if another fault hides it.
    xid_class: XidClass | None

    @property
    def key(self) -> str:
        """The key of the taint that says it."""
        return _TAINTS.get(self.xid_class, TAINT_XID)


def _of_gpu(pci: PciAddress, devices: Sequence[TaintedDevice]) -> list[tuple[Incident, float]]:
    ages: dict[_Fault, float] = {}
    for device in devices:
        for fault in faults_of(device.taints):
            ages[fault] = max(device.ages.get(fault.key, 0.0), ages.get(fault, 0.0))
    return [
        (Incident(scope, fault.xid, fault.xid_class), age)
        for fault, age in ages.items()
        for scope in _scopes(pci, fault, devices)
    ]


def faults_of(taints: Iterable[Taint]) -> tuple[_Fault, ...]:
    """The faults in these taints that NVML does not report a second time."""
    found: list[_Fault] = []
    xids: list[int] = []
    for taint in taints:
        xid_class = _CLASS_BY_TAINT.get(taint.key)
        if taint.key == TAINT_XID and (xid := _code(taint.value)) is not None:
            xids.append(xid)
        elif xid_class is not None and taint.value == OPERATIONAL:
            found.append(_Fault(None, xid_class))
        # The class is taken from the taint: the event or an admin's table may have decided it, not the XID.
        elif xid_class is not None and taint.value.startswith(XID_VALUE):
            xid = _code(taint.value.removeprefix(XID_VALUE))
            found += [] if xid is None else [_Fault(xid, xid_class)]
    # A fault that was contained has no second taint. If there is one of another fault, it may hide its own.
    alone: XidClass | None = None if found else "contained"
    classified = {fault.xid for fault in found}
    return (*found, *(_Fault(xid, alone) for xid in xids if xid not in classified))


def _code(text: str) -> int | None:
    # int() accepts other digits than ASCII and spaces, and another driver may have written the taint.
    if not (text.isascii() and text.isdigit()):
        return None
    return int(text) if 0 < int(text) <= MOST_XID else None


def _scopes(pci: PciAddress, fault: _Fault, devices: Sequence[TaintedDevice]) -> list[Region]:
    """The regions that the fault hit, chosen so that they hit the same devices again.

    If no device was spared, it is the whole GPU. Otherwise it is the smallest partition that overlaps every
    device that was hit and none that was spared; if there is none, each partition that was hit.
    """
    hit = [one for one in devices if fault in faults_of(one.taints)]
    # Stored partitions have the span that their counters give, so the same partitions can be found again.
    spans = {region.span for device in hit for region in device.regions if region.pci == pci}
    partitions = [
        Region(pci, span)
        for span in sorted((one for one in spans if one), key=lambda one: (one.size, one.start))
    ]
    # A device has one taint for each key, of its worst fault. So one that seems to be spared may not be.
    spared = [one for one in devices if one not in hit]
    for beside in (spared, [one for one in spared if fault.key not in {taint.key for taint in one.taints}]):
        if not beside:
            return [Region(pci)]
        free = [one for one in partitions if not any(overlap(device.regions, (one,)) for device in beside)]
        for scopes in (*([one] for one in free), free):
            if all(overlap(device.regions, tuple(scopes)) for device in hit):
                return scopes
    return partitions or [Region(pci)]
