"""The pools whose devices a node can reach: the newest generation of each, complete and consistent or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kubernetes_rules.allocator.node_selection import selects
from kubernetes_rules.allocator.published import Counters, Device, PoolId, Slice
from kubernetes_rules.node_selectors import Node
from kubernetes_rules.pool_generations import newest_of


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """A pool as one node sees it.

    ``devices`` are those the node's slices hold, in the order in which they are tried;
    ``other_devices`` are the rest of the pool, which use up its counters all the same. ``incomplete`` or
    ``invalid`` say why nothing is allocated from it; then it has no devices.
    """

    id: PoolId
    devices: tuple[Device, ...] = ()
    other_devices: tuple[Device, ...] = ()
    counter_sets: Counters = ()
    incomplete: str | None = None
    invalid: str | None = None

    @property
    def usable(self) -> bool:
        """Whether devices are allocated from it."""
        return self.incomplete is None and self.invalid is None

    @property
    def comes_last(self) -> bool:
        """Pools with a device that needs to be bound to are tried after all others."""
        return any(device.spec.get("bindingConditions") is not None for device in self.devices)


def gather_pools(
    slices: Iterable[Slice], node: Node, slices_of_pool: Mapping[PoolId, Sequence[Slice]]
) -> tuple[Pool, ...]:
    """The pools of a node in the order in which they are tried: by driver and name.

    ``slices`` are those that name the node, then those that name none. Obsolete slices are left out.
    Raises AllocationFailed for a malformed node selector.
    """
    reaching = (one for one in slices if not one.hidden and _reaches(one, node))
    newest = newest_of(reaching, lambda one: (one.pool_id, one.generation))
    pools = [
        pool
        for pool_id, seen in newest.items()
        if (pool := _pool(pool_id, seen, slices_of_pool[pool_id])) is not None
    ]
    return tuple(sorted(pools, key=lambda pool: (pool.comes_last, pool.id)))


def _reaches(one: Slice, node: Node) -> bool:
    if one.selection.known:
        return selects(one.selection, node)
    if not one.per_device:
        return False
    return any(device.selection is not None and selects(device.selection, node) for device in one.devices)


def _pool(pool_id: PoolId, seen: list[Slice], everywhere: Sequence[Slice]) -> Pool | None:
    """The pool of the slices that the node sees; None if there is a newer generation elsewhere."""
    generation, wanted = seen[0].generation, seen[0].slice_count
    others: list[Slice] = []
    if len(seen) != wanted:
        if any(one.generation > generation for one in everywhere):
            return None
        current = [one for one in everywhere if one.generation == generation and not one.hidden]
        if len(current) != wanted:
            hidden = sum(one.generation == generation and one.hidden for one in everywhere)
            return Pool(pool_id, incomplete=_count_reason(len(current), wanted, generation, hidden))
        names = {one.name for one in seen}
        others = [one for one in current if one.name not in names]
    return _build(pool_id, sorted(seen, key=lambda one: one.name), others)


def _count_reason(found: int, wanted: int, generation: int, hidden: int) -> str:
    reason = f"{found} of {wanted} slices of generation {generation} are published"
    return f"{reason}, {hidden} more use compatibility groups, which are off" if hidden else reason


def _build(pool_id: PoolId, seen: list[Slice], others: list[Slice]) -> Pool:
    devices = tuple(device for one in seen if not one.shared for device in one.devices)
    other_devices = tuple(device for one in others if not one.shared for device in one.devices)
    counter_sets = tuple(counters for one in (*seen, *others) for counters in one.shared)
    invalid = (
        _duplicate("device", [device.id.device for device in devices])
        or _duplicate("counter set", [name for name, _ in counter_sets])
        or _dangling(counter_sets, (*devices, *other_devices))
    )
    if invalid:
        return Pool(pool_id, invalid=invalid)
    return Pool(pool_id, devices, other_devices, counter_sets)


def _duplicate(kind: str, names: Sequence[str]) -> str | None:
    if len(set(names)) == len(names):
        return None
    twice = next(name for index, name in enumerate(names) if name in names[:index])
    return f"two of its {kind}s are named {twice}"


def _dangling(counter_sets: Counters, devices: Iterable[Device]) -> str | None:
    known = {name: {counter for counter, _ in counters} for name, counters in counter_sets}
    for device in devices:
        for name, counters in device.consumes:
            if name not in known:
                return f"device {device.id.device} consumes counter set {name}, which it does not have"
            for counter, _ in counters:
                if counter not in known[name]:
                    return f"device {device.id.device} consumes counter {counter}, which {name} does not have"
    return None
