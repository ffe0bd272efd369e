"""Taints the devices that cannot be made now, because something else is in their place. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from driver.devices.device import Device, Taint
from driver.devices.limits import is_label_value
from driver.devices.node_state import BlockedPlacement, NodeState
from driver.devices.region import Region, overlap
from driver.devices.taints import HELD_BY_CLAIM, TAINT_BLOCKED
from driver.hardware.gpu import Gpu
from driver.kinds.registry import KINDS
from driver.kinds.sharing.kind import SHARING

_HANGING = {"nvidia-smi-hangs": SHARING["TimeSlicing"], "mps-hangs": SHARING["MPS"]}
"""What hangs -> the sharing of the devices that cannot be made meanwhile."""


def with_blocked(devices: Sequence[Device], state: NodeState, gpus: Iterable[Gpu]) -> tuple[Device, ...]:
    """The devices, each with one taint if it overlaps something that blocks it.

    That is what the plugin reports as blocked, and every device that a claim holds and that is not among
    ``devices``. ``gpus`` give the size of a partition of which only the name is known; without them it blocks
    all of its GPU.
    """
    # If a held device is still offered, its name and its counters keep the scheduler from its place. If it is
    # not, only a taint can.
    gone = set(state.held).difference(device.name for device in devices)
    if not gone and not state.blocked:
        return tuple(devices)
    held = places(gone, gpus)
    return tuple(_tainted(device, _reason(device, state.blocked, held)) for device in devices)


def places(devices: Iterable[str], gpus: Iterable[Gpu]) -> list[tuple[Region, ...]]:
    """What each of the devices of these names takes."""
    by_pci = {gpu.pci: gpu for gpu in gpus}
    names = map(KINDS.parse, sorted(devices))
    return [name.kind.place(name.unshared, by_pci) for name in names if name is not None]


def _tainted(device: Device, reason: str | None) -> Device:
    if reason is None:
        return device
    # The reason may be from a newer plugin, and the API server refuses a taint whose value is no label value.
    value = reason if is_label_value(reason) else ""
    return replace(device, taints=(*device.taints, Taint(TAINT_BLOCKED, value, "NoSchedule")))


def _reason(
    device: Device,
    blocked: Sequence[BlockedPlacement],
    held: Iterable[tuple[Region, ...]],
) -> str | None:
    """Why the device cannot be made now, None if it can."""
    for one in blocked:
        if one.reason in _HANGING and device.attributes.get("sharing") != _HANGING[one.reason]:
            continue
        if overlap(device.regions, (Region(one.pci, one.span),)) and not _is_itself(device, one):
            return one.reason
    if any(overlap(device.regions, regions) for regions in held):
        return HELD_BY_CLAIM
    return None


def _is_itself(device: Device, blocked: BlockedPlacement) -> bool:
    """Whether the reported foreign GPU instance is the device itself."""
    # The plugin reports every GPU instance that it did not make, also those that an admin made to be offered.
    if blocked.reason != "foreign-instance" or blocked.span != device.span:
        return False
    name = KINDS.parse(device.name)
    return name is not None and name.kind.by_admin
