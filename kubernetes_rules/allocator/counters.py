"""Shared counters (KEP-4815): what devices in use leave of the counters that a pool's devices consume."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

from kubernetes_rules.allocator.held import Held
from kubernetes_rules.allocator.pools import NodeView, Pool
from kubernetes_rules.allocator.published import Device, PoolId
from kubernetes_rules.quantity import format_bytes

Available = dict[tuple[str, str], int]
"""What is left of each counter, in billionths, by counter set and counter."""


class Exhausted(NamedTuple):
    """A counter of which too little is left for a device; ``needed`` and ``left`` are in billionths."""

    counter_set: str
    counter: str
    needed: int
    left: int

    def described(self, whole: int) -> str:
        """A sentence; ``whole`` is the counter's value in its counter set, in billionths."""
        needed, left, all_of_it = (_text(nanos) for nanos in (self.needed, max(0, self.left), whole))
        name = f"counter {self.counter} of {self.counter_set}"
        return f"{needed} of {name} is needed, {left} of {all_of_it} is left"


def available_counters(pool: Pool, held: Held) -> Available:
    """What the devices in use leave of the pool's counters; it can be negative."""
    left = {(name, counter): nanos for name, counters in pool.counter_sets for counter, nanos in counters}
    for device in _takers(pool, held):
        take(left, device, 1)
    return left


def _takers(pool: Pool, held: Held) -> tuple[Device, ...]:
    """The devices in use that consume counters of the pool."""
    # The scheduler learns what a device consumes from its slice. A device in use that is no longer published
    # consumes nothing, so a pool can be over-committed that way.
    devices = (*pool.devices, *pool.other_devices)
    return tuple(device for device in devices if device.consumes and held.is_held(device.id))


class CounterCache:
    """What devices in use leave of the pools' counters, computed once per pool until something changes."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._left: dict[PoolId, Available] = {}
        self._takers: dict[PoolId, tuple[Device, ...]] = {}

    def of(self, view: NodeView, pool: PoolId) -> Available:
        """The counters of a pool, which are the same for every node that sees it."""
        left = self._left.get(pool)
        if left is None:
            left = self._left[pool] = available_counters(view.pool_of[pool], self._held)
        return left

    def takers(self, view: NodeView, pool: PoolId) -> tuple[Device, ...]:
        """The devices in use that consume counters of a pool."""
        found = self._takers.get(pool)
        if found is None:
            found = self._takers[pool] = _takers(view.pool_of[pool], self._held)
        return found

    def forget(self, pools: set[PoolId]) -> None:
        """Compute these pools again: some of their devices were taken or given back."""
        for pool in pools:
            self._left.pop(pool, None)
            self._takers.pop(pool, None)


def take(left: Available, device: Device, times: int) -> None:
    """Take what the device consumes, or give it back with -1."""
    for counter, nanos in device.takes.items():
        left[counter] -= times * nanos


def suffices(left: Available, device: Device) -> bool:
    """Whether enough is left of all counters for the device."""
    # The allocator checks every counter of the pool, not only those that this device consumes: one that is
    # below zero blocks all devices with consumesCounters.
    return (
        all(left.get(counter, needed) >= needed for counter, needed in device.takes.items())
        and min(left.values(), default=0) >= 0
    )


def exhausted(left: Available, device: Device) -> Exhausted | None:
    """The counter of which too little is left for the device, None if all suffice."""
    for (name, counter), nanos in left.items():
        needed = device.takes.get((name, counter), 0)
        if nanos < needed:
            return Exhausted(name, counter, needed, nanos)
    return None


def _text(nanos: int) -> str:
    whole, rest = divmod(nanos, 10**9)
    return f"{Decimal(nanos).scaleb(-9).normalize():f}" if rest else format_bytes(whole)
