"""Says who took the part of a GPU that a device needs, where forms of one GPU share its counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from driver.devices.names import DRIVER_NAME
from driver.kinds.registry import KINDS
from gpuctl.node.picture import ranges
from gpuctl.node.share_words import STRATEGIES

if TYPE_CHECKING:
    from kubernetes_rules.allocator.allocate import Allocator
    from kubernetes_rules.allocator.pools import NodeView
    from kubernetes_rules.allocator.published import Device

_MEMORY_SLICE = "memory-slice-"
Amounts = Mapping[tuple[str, str], int]


def taken_counters(allocator: Allocator, view: NodeView, device: Device) -> str | None:
    """Which claims hold what the device would take, for a device of this driver that its counters rule out.

    None for a device of another driver, or where nobody who holds a device of this one explains it.
    """
    if device.id.driver != DRIVER_NAME:
        return None
    left = allocator.counters.of(view, device.id.pool_id)
    short = {key for key, nanos in amounts(device).items() if left.get(key, 0) < nanos}
    pool = view.pool_of[device.id.pool_id]
    parts = []
    for other in (*pool.devices, *pool.other_devices):
        takes = {key for key, nanos in amounts(other).items() if nanos > 0}
        sharers = [claim for claim, _ in allocator.held.shares.get(other.id, ())]
        holders = tuple(dict.fromkeys((*allocator.held.exclusive.get(other.id, ()), *sharers)))
        if holders and short & takes:
            parts.append(_part(other, takes & short, takes, holders))
    return "; ".join(dict.fromkeys(parts)) or None


def amounts(device: Device) -> Amounts:
    """What a device consumes, by counter set and counter, in billionths."""
    found: dict[tuple[str, str], int] = {}
    for name, counters in device.consumes:
        for counter, nanos in counters:
            found[name, counter] = found.get((name, counter), 0) + nanos
    return found


def _part(
    holder: Device,
    missing: Iterable[tuple[str, str]],
    takes: Iterable[tuple[str, str]],
    holders: Sequence[str],
) -> str:
    name = KINDS.parse(holder.id.device)
    claims = f"claim{'s' * (len(holders) > 1)} {', '.join(holders)}"
    if name is not None and name.takes_all:
        if name.shared is not None:
            how = STRATEGIES[name.shared.strategy]
            return f"its GPU is shared by {how}, and shares are held by {claims} ({holder.id.device})"
        return f"its GPU is held as a whole by {claims} ({holder.id.device})"
    engines = sorted({counter for _, counter in missing if not counter.startswith(_MEMORY_SLICE)})
    places = (
        counter.removeprefix(_MEMORY_SLICE) for _, counter in takes if counter.startswith(_MEMORY_SLICE)
    )
    slices = sorted(int(place) for place in places if place.isdecimal())
    what = f"memory slice{'s' * (len(slices) > 1)} {ranges(slices)}"
    overlaps = any(counter.startswith(_MEMORY_SLICE) for _, counter in missing)
    if not overlaps:
        what = " and ".join(engine.replace("-", " ") for engine in engines)
    verb = "is" if overlaps and len(slices) == 1 else "are"
    return f"its GPU is cut: {what} {verb} held by {claims} ({holder.id.device})"
