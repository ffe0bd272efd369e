"""Taints the devices that cannot be made now, since something else lies where they would: pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from driver.devices.device import Device, Taint
from driver.devices.node_state import BlockedPlacement, NodeState
from driver.devices.region import Region, overlap
from driver.devices.taints import HELD_BY_CLAIM, TAINT_BLOCKED
from driver.hardware.gpu import Gpu
from driver.kinds.kind import Kinds
from driver.kinds.registry import KINDS

_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z", re.ASCII)


def with_blocked(
    devices: Sequence[Device], state: NodeState, gpus: Iterable[Gpu], kinds: Kinds = KINDS
) -> tuple[Device, ...]:
    """The devices, each with one taint when it lies over something that blocks it.

    What blocks is what the plugin says, and every device that a claim holds and that is not among
    ``devices``: nothing else would keep the scheduler from giving its place to another claim. Where a held
    device is still offered, its name and its counters do. ``gpus`` tell how large a partition is that
    only its name is known of; without them it blocks all of its GPU.
    """
    gone = set(state.held).difference(device.name for device in devices)
    if not gone and not state.blocked:
        return tuple(devices)
    by_pci = {gpu.pci: gpu for gpu in gpus}
    held = [
        name.kind.place(name.unshared, by_pci) for name in map(kinds.parse, sorted(gone)) if name is not None
    ]
    return tuple(_tainted(device, _reason(device, state.blocked, held, kinds)) for device in devices)


def _tainted(device: Device, reason: str | None) -> Device:
    if reason is None:
        return device
    value = reason if _LABEL_VALUE.match(reason) else ""
    return replace(device, taints=(*device.taints, Taint(TAINT_BLOCKED, value, "NoSchedule")))


def _reason(
    device: Device,
    blocked: Sequence[BlockedPlacement],
    held: Iterable[tuple[Region, ...]],
    kinds: Kinds,
) -> str | None:
    """Why the device cannot be made now, None when it can."""
    for one in blocked:
        if overlap(device.regions, (Region(one.pci, one.span),)) and not _is_itself(device, one, kinds):
            return one.reason
    if any(overlap(device.regions, regions) for regions in held):
        return HELD_BY_CLAIM
    return None


def _is_itself(device: Device, blocked: BlockedPlacement, kinds: Kinds) -> bool:
    """Whether the device itself is the foreign instance that is reported to be in the way."""
    if blocked.reason != "foreign-instance" or blocked.span != device.span:
        return False
    name = kinds.parse(device.name)
    return name is not None and name.kind.by_admin
