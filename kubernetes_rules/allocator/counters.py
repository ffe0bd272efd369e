"""Shared counters (KEP-4815): what the partitions of a device that are in use leave of it."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

from kubernetes_rules.allocator.held import Held
from kubernetes_rules.allocator.pools import Pool
from kubernetes_rules.allocator.published import Device
from kubernetes_rules.quantity import format_bytes

Available = dict[tuple[str, str], int]
"""Counter set and counter, with what is left in billionths."""


class Exhausted(NamedTuple):
    """A counter that does not allow to take a device; ``needed`` and ``left`` are in billionths."""

    counter_set: str
    counter: str
    needed: int
    left: int

    def described(self, whole: int) -> str:
        """A sentence; ``whole`` is what the counter has when nothing is taken, in billionths."""
        needed, left, all_of_it = (_text(nanos) for nanos in (self.needed, max(0, self.left), whole))
        name = f"counter {self.counter} of {self.counter_set}"
        return f"{needed} of {name} is needed, {left} of {all_of_it} is left"


def available_counters(pool: Pool, held: Held) -> Available:
    """What the devices in use leave of the pool's counters; it can be negative.

    A device that is in use but published no longer takes nothing.
    """
    left = {(name, counter): nanos for name, counters in pool.counter_sets for counter, nanos in counters}
    for devices in (pool.devices, pool.other_devices):
        for device in devices:
            if device.consumes and held.is_held(device.id):
                take(left, device, 1)
    return left


def take(left: Available, device: Device, times: int) -> None:
    """Take what the device consumes, or give it back with -1."""
    for name, counters in device.consumes:
        for counter, nanos in counters:
            left[name, counter] -= times * nanos


def exhausted(left: Available, device: Device) -> Exhausted | None:
    """Which counter does not allow to take the device, None if all do.

    Every counter of the pool counts: one that is overdrawn blocks all devices that consume any.
    """
    wanted: Available = {}
    for name, counters in device.consumes:
        for counter, nanos in counters:
            wanted[name, counter] = wanted.get((name, counter), 0) + nanos
    for (name, counter), nanos in left.items():
        needed = wanted.get((name, counter), 0)
        if nanos < needed:
            return Exhausted(name, counter, needed, nanos)
    return None


def _text(nanos: int) -> str:
    whole, rest = divmod(nanos, 10**9)
    return f"{Decimal(nanos).scaleb(-9).normalize():f}" if rest else format_bytes(whole)
