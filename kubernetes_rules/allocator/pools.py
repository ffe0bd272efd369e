"""The pools whose devices a node can reach, the node's usable devices in order, and what is left of counters.

Only the newest generation of a pool counts, even while it is incomplete or invalid. Shared counters are those
of KEP-4815: what devices in use leave of the counters that a pool's devices consume.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import NamedTuple

from kubernetes_rules.allocator.held import Held
from kubernetes_rules.allocator.published import Counters, Device, PoolId, Selection, Slice
from kubernetes_rules.errors import AllocationFailed
from kubernetes_rules.pool_generations import newest_of
from kubernetes_rules.quantity import format_bytes
from kubernetes_rules.selectors import Node, NodeSelectorInvalid, node_selector_matches


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """A pool as one node sees it.

    ``devices`` are those of the node's slices, in the order in which they are tried. ``other_devices`` are
    the rest of the pool, which consume its counters too. ``incomplete`` or ``invalid`` say why nothing is
    allocated from the pool; then it has no devices.
    """

    id: PoolId
    devices: tuple[Device, ...] = ()
    other_devices: tuple[Device, ...] = ()
    counter_sets: Counters = ()
    incomplete: str | None = None
    invalid: str | None = None

    @property
    def usable(self) -> bool:
        """Whether devices can be allocated from it."""
        return self.incomplete is None and self.invalid is None

    @property
    def comes_last(self) -> bool:
        """Whether it is tried after all others: a device has binding conditions, for which a pod waits."""
        return any(device.spec.get("bindingConditions") is not None for device in self.devices)


def gather_pools(
    slices: Iterable[Slice], node: Node, slices_of_pool: Mapping[PoolId, Sequence[Slice]]
) -> tuple[Pool, ...]:
    """The pools of a node in the order in which they are tried: by driver and name.

    ``slices`` are those that name the node, then those that name none. Obsolete slices are left out.
    Raises AllocationFailed for a malformed node selector. Go: GatherPools.
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
        return _is_selected(one.selection, node)
    if not one.per_device:
        return False
    return any(
        device.selection is not None and _is_selected(device.selection, node) for device in one.devices
    )


def _pool(pool_id: PoolId, seen: list[Slice], everywhere: Sequence[Slice]) -> Pool | None:
    """The pool of the slices that the node sees; None if another slice has a newer generation."""
    generation, wanted = seen[0].generation, seen[0].slice_count
    others: list[Slice] = []
    # The rest of a pool may be in slices for other nodes, counter sets among them.
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
    # Duplicate devices are looked for only among the slices that this node sees, as in GatherPools.
    invalid = (
        next((one.invalid for one in (*seen, *others) if one.invalid), None)
        or _duplicate("device", [device.id.device for device in devices])
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


def _is_selected(selection: Selection, node: Node) -> bool:
    """Whether the node is selected: by name, else by ``allNodes``, else by the selector.

    Raises AllocationFailed for a malformed selector. Go: NodeMatches in the allocator's pools.
    """
    if selection.node_name:
        return node.name == selection.node_name
    if selection.all_nodes:
        return True
    if selection.terms is None:
        return False
    try:
        return node_selector_matches(selection.terms, node)
    except NodeSelectorInvalid as error:
        raise AllocationFailed(error.what, "correct the ResourceSlice") from error


class Matching(NamedTuple):
    """The positions in a view of the devices that selectors match; ``certain``: the selectors failed on none.

    Devices on which they failed are among them.
    """

    positions: tuple[int, ...]
    certain: bool


@dataclass(frozen=True, slots=True, eq=False)
class NodeView:
    """The pools of a node in the order in which they are tried; ``devices`` are those of usable pools."""

    node: Node
    pools: tuple[Pool, ...]
    devices: tuple[Device, ...]
    pool_of: Mapping[PoolId, Pool]
    matching: dict[tuple[str, ...], Matching] = field(default_factory=dict)
    """The devices that selectors match, as far as they were evaluated; views of like nodes have it in common.
    """
    _selected: dict[Device, bool] = field(default_factory=dict)

    def selects(self, device: Device) -> bool:
        """Whether the device's own node selection, if it has one, selects this node.

        Raises AllocationFailed for a malformed node selector.
        """
        if not device.per_device or device.selection is None:
            return True
        known = self._selected.get(device)
        if known is None:
            known = self._selected[device] = _is_selected(device.selection, self.node)
        return known

    def all_devices(self) -> Iterator[Device]:
        """The devices of all pools; raises AllocationFailed at a pool from which nothing is allocated."""
        for pool in self.pools:
            if not pool.usable:
                state = "being updated" if pool.incomplete else "invalid"
                reason = pool.incomplete or pool.invalid
                raise AllocationFailed(
                    f"all devices are asked for, but pool {pool.id} is {state}: {reason}",
                    "wait for its driver" if pool.incomplete else "correct its driver",
                )
            yield from pool.devices


class NodeViews:
    """Makes the views of nodes for one set of slices, and keeps them."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        self._slices = slices
        self._named: dict[str, list[Slice]] = {}
        self._unnamed: list[Slice] = []
        self._of_pool: dict[PoolId, list[Slice]] = {}
        for one in slices:
            name = one.selection.node_name
            (self._named.setdefault(name, []) if name else self._unnamed).append(one)
            self._of_pool.setdefault(one.pool_id, []).append(one)
        self._views: dict[str, NodeView] = {}
        self._matching: dict[tuple[int, ...], dict[tuple[str, ...], Matching]] = {}

    def without_taints(self) -> NodeViews:
        """The views as if no device was tainted."""
        return NodeViews([_without_taints(one) for one in self._slices])

    def view(self, node: Node) -> NodeView:
        """The view of a node, kept until its labels change; raises AllocationFailed as gather_pools does."""
        known = self._views.get(node.name)
        if known is None or known.node.labels != node.labels:
            slices = (*self._named.get(node.name, ()), *self._unnamed)
            pools = gather_pools(slices, node, self._of_pool)
            devices = tuple(device for pool in pools if pool.usable for device in pool.devices)
            # Devices that are read from one and the same object differ only by their pool's name.
            alike = self._matching.setdefault(tuple(id(device.spec) for device in devices), {})
            known = NodeView(node, pools, devices, {pool.id: pool for pool in pools}, alike)
            self._views[node.name] = known
        return known


def _without_taints(one: Slice) -> Slice:
    if not any(device.taints for device in one.devices):
        return one
    return replace(one, devices=tuple(replace(device, taints=()) for device in one.devices))


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
