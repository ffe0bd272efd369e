"""Puts verdicts on the devices that they hit, and reads back from stored taints what had hit a GPU: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from driver.devices.device import Device, Taint
from driver.devices.region import Region, overlap
from driver.devices.taints import TAINT_REBOOT, TAINT_RESET, TAINT_XID
from driver.health.incident import OPERATIONAL, XID_VALUE, Incident
from driver.health.verdict import Verdict, merged
from driver.health.xids import MOST_XID, XidClass
from driver.nvml.pci_address import PciAddress

_TOLD: Mapping[str, XidClass] = {TAINT_RESET: "needs-reset", TAINT_REBOOT: "needs-reboot"}


def with_verdicts(devices: Sequence[Device], verdicts: Sequence[Verdict]) -> tuple[Device, ...]:
    """The devices, each with the taints of the verdicts that hit it.

    A verdict about a GPU hits all of its forms; one about a partition hits that, and what lies over it.
    """
    if not verdicts:
        return tuple(devices)
    return tuple(_tainted(device, verdicts) for device in devices)


def _tainted(device: Device, verdicts: Sequence[Verdict]) -> Device:
    found = [one.taint for one in verdicts if overlap(device.regions, (one.scope,))]
    return replace(device, taints=merged((*found, *device.taints))) if found else device


@dataclass(frozen=True, slots=True)
class Marked:
    """A stored device with its taints, and how long ago the oldest of them was added."""

    regions: tuple[Region, ...]
    taints: tuple[Taint, ...]
    age_seconds: float


def taken_over(stored: Iterable[Marked]) -> tuple[tuple[Incident, float], ...]:
    """The incidents in stored taints, each with its age in seconds.

    Faults that each check asks NVML for are not among them.
    """
    by_gpu: dict[PciAddress, list[Marked]] = {}
    for device in stored:
        for pci in dict.fromkeys(region.pci for region in device.regions):
            by_gpu.setdefault(pci, []).append(device)
    return tuple(found for pci, devices in sorted(by_gpu.items()) for found in _of_gpu(pci, devices))


@dataclass(frozen=True, slots=True)
class _Fault:
    xid: int | None
    told: XidClass | None


def _of_gpu(pci: PciAddress, devices: Sequence[Marked]) -> list[tuple[Incident, float]]:
    hit: dict[_Fault, list[Marked]] = {}
    for device in devices:
        for fault in faults_of(device.taints):
            hit.setdefault(fault, []).append(device)
    return [
        (Incident(scope, fault.xid, fault.told), max(one.age_seconds for one in found))
        for fault, found in hit.items()
        for scope in _scopes(pci, found, [one for one in devices if one not in found])
    ]


def faults_of(taints: Iterable[Taint]) -> tuple[_Fault, ...]:
    """The faults in these taints that NVML cannot be asked for.

    A taint that says what an XID requires gives its class: that was decided by more than the code.
    """
    told: dict[int | None, XidClass | None] = {}
    for taint in taints:
        if taint.key == TAINT_XID and (xid := _code(taint.value)) is not None:
            told.setdefault(xid, None)
        elif taint.key in _TOLD and taint.value == OPERATIONAL:
            told[None] = _TOLD[taint.key]
        elif taint.key in _TOLD and taint.value.startswith(XID_VALUE):
            xid = _code(taint.value.removeprefix(XID_VALUE))
            if xid is not None:
                told[xid] = _TOLD[taint.key]
    return tuple(_Fault(xid, found) for xid, found in told.items())


def _code(text: str) -> int | None:
    if not (text.isascii() and text.isdigit()):
        return None
    return int(text) if 0 < int(text) <= MOST_XID else None


def _scopes(pci: PciAddress, hit: Sequence[Marked], spared: Sequence[Marked]) -> list[Region]:
    """What was hit, so that it hits the same devices again: all of the GPU where none was spared.

    Else the smallest partition that lies on all that was hit and on nothing that was spared, or each of the
    partitions that were hit where there is no such one.
    """
    if not spared:
        return [Region(pci)]
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
