"""What the allocated devices of a node's pool leave: which others fit beside them, and how many shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubernetes_rules.allocator.capacity import consumption
from kubernetes_rules.allocator.counters import Available, available_counters, exhausted, take
from kubernetes_rules.allocator.held import Held, bare_name
from kubernetes_rules.allocator.pools import Pool, gather_pools
from kubernetes_rules.allocator.published import Device, read_slice
from kubernetes_rules.selectors import read_node

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PoolCounters:
    """A pool as allocation sees it now.

    ``problem`` says why nothing is allocated from it, None if it is well. ``devices`` are by name, none
    where there is a problem; ``left`` is what is left of its counters, ``held`` what claims have.
    """

    problem: str | None
    devices: Mapping[str, Device]
    left: Available
    held: Held

    def fits(self, name: str) -> bool:
        """Whether the counters leave room for a device; in a pool with a problem nothing has room."""
        return self._has_room(self.left, name)

    def at_once(self, names: Iterable[str]) -> int:
        """How many of these devices have room together, taken in their order."""
        left, count = dict(self.left), 0
        for name in names:
            if name in self.devices and self.held.is_held(self.devices[name].id):
                count += 1  # a shared one: its counters were taken with its first share
            elif self._has_room(left, name):
                take(left, self.devices[name], 1)
                count += 1
        return count

    def claims_left(self, name: str) -> int | None:
        """For how many more claims that ask for no amount a shared device has capacity; None if not shared.

        Raises AllocationFailed for a policy that cannot be computed with.
        """
        device = self.devices.get(name)
        if device is None or not device.allow_multiple:
            return None
        taken, driver = self.held.capacity_taken(device.id), device.id.driver
        room = [
            (device.capacities[one].value.nanos - taken.get(bare_name(driver, one), 0)) // amount.nanos
            for one, amount in consumption(device, {}).items()
            if amount.nanos > 0
        ]
        return max(0, min(room)) if room else None

    def _has_room(self, left: Available, name: str) -> bool:
        device = self.devices.get(name)
        return device is not None and (not device.consumes or exhausted(left, device) is None)


def pools_of(node: str, slices: Sequence[Object]) -> tuple[Pool, ...]:
    """The pools of one node, read from its slices; raises AllocationFailed for a malformed one."""
    read = [read_slice(one) for one in slices]
    by_pool = {one.pool_id: [other for other in read if other.pool_id == one.pool_id] for one in read}
    return gather_pools(read, read_node({"metadata": {"name": node}}), by_pool)


def counters_in(pools: Sequence[Pool], held: Held) -> PoolCounters:
    """The counters of pools that were read, with what claims hold now."""
    problems = [problem for pool in pools if (problem := pool.incomplete or pool.invalid)]
    devices = {device.id.device: device for pool in pools for device in pool.devices}
    left: Available = {}
    for pool in pools:
        left |= available_counters(pool, held)
    return PoolCounters("; ".join(problems) or None, devices, left, held)
