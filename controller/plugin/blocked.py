"""Taints the devices that cannot be made now, since something else lies where they would: pure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from driver.devices.device import Taint
from driver.devices.names import parse_device_name, profile_slug
from driver.devices.taints import TAINT_BLOCKED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from driver.devices.device import Device
    from driver.devices.names import DeviceName
    from driver.devices.node_state import BlockedPlacement, NodeState
    from driver.hardware.gpu import Gpu
    from driver.nvml.mig import Placement
    from driver.nvml.pci_address import PciAddress

HELD_BY_CLAIM = "held-by-claim"
"""A claim still holds a device that is no longer offered, and that lies there."""

_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z", re.ASCII)
_PART = re.compile(r"^[1-8]c-")


def with_blocked(devices: Sequence[Device], state: NodeState, gpus: Iterable[Gpu]) -> tuple[Device, ...]:
    """The devices, each with one taint when it lies over something that blocks it.

    What blocks is what the plugin says, and every device that a claim holds and that is not among
    ``devices``: nothing else would keep the scheduler from giving its place to another claim. Where a held
    device is still offered, its name and its counters do. ``gpus`` tell how large a partition is that
    only its name is known of; without them it blocks all of its GPU.
    """
    by_pci = {gpu.pci: gpu for gpu in gpus}
    offered = {device.name for device in devices}
    held = [
        (name.pci, _span(name, by_pci.get(name.pci)))
        for name in map(parse_device_name, sorted(set(state.held) - offered))
        if name is not None
    ]
    return tuple(_tainted(device, _reason(device, state.blocked, held)) for device in devices)


def _tainted(device: Device, reason: str | None) -> Device:
    if reason is None:
        return device
    value = reason if _LABEL_VALUE.match(reason) else ""
    return replace(device, taints=(*device.taints, Taint(TAINT_BLOCKED, value, "NoSchedule")))


def _reason(
    device: Device,
    blocked: Sequence[BlockedPlacement],
    held: Sequence[tuple[PciAddress, Placement | None]],
) -> str | None:
    """Why the device cannot be made now, None when it can."""
    for one in blocked:
        if _overlap(device, one.pci, one.span) and not _is_itself(device, one):
            return one.reason
    if any(_overlap(device, pci, span) for pci, span in held):
        return HELD_BY_CLAIM
    return None


def _overlap(device: Device, pci: PciAddress, span: Placement | None) -> bool:
    if device.pci != pci:
        return False
    return span is None or device.span is None or device.span.overlaps(span)


def _is_itself(device: Device, blocked: BlockedPlacement) -> bool:
    """Whether the device is the instance of somebody else that is said to be in the way."""
    name = parse_device_name(device.name)
    static = name is not None and name.static
    return static and blocked.reason == "foreign-instance" and blocked.span == device.span


def _span(name: DeviceName, gpu: Gpu | None) -> Placement | None:
    """Where a device of this name lies in the memory slices, None for all of its GPU or when unknown."""
    if name.profile is None or gpu is None or gpu.mig is None:
        return None
    profile = _PART.sub("", name.profile)
    places = (
        place
        for placed in gpu.mig.profiles
        if profile_slug(placed.profile.name) == profile
        for place in placed.placements
        if place.start == name.start
    )
    return next(places, None)
