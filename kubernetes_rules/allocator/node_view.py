"""What allocation needs to know of one node: its pools, and their usable devices in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kubernetes_rules.allocator.failure import AllocationFailed
from kubernetes_rules.allocator.node_selection import selects
from kubernetes_rules.allocator.pools import Pool, gather_pools
from kubernetes_rules.allocator.published import Device, PoolId, Slice
from kubernetes_rules.node_selectors import Node


@dataclass(frozen=True, slots=True, eq=False)
class NodeView:
    """The pools of a node in the order in which they are tried, and ``devices``, those of usable pools."""

    node: Node
    pools: tuple[Pool, ...]
    devices: tuple[Device, ...]
    pool_of: Mapping[PoolId, Pool]
    _selected: dict[Device, bool] = field(default_factory=dict)

    def selects(self, device: Device) -> bool:
        """Whether a device of its pools is for this node, where devices have selections of their own.

        Raises AllocationFailed for a malformed node selector.
        """
        if not device.per_device or device.selection is None:
            return True
        known = self._selected.get(device)
        if known is None:
            known = self._selected[device] = selects(device.selection, self.node)
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
    """Makes and keeps the views of nodes over one set of slices."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        self._named: dict[str, list[Slice]] = {}
        self._unnamed: list[Slice] = []
        self._of_pool: dict[PoolId, list[Slice]] = {}
        for one in slices:
            name = one.selection.node_name
            (self._named.setdefault(name, []) if name else self._unnamed).append(one)
            self._of_pool.setdefault(one.pool_id, []).append(one)
        self._views: dict[str, NodeView] = {}

    def view(self, node: Node) -> NodeView:
        """The view of a node, kept until its labels change; raises AllocationFailed as gather_pools does."""
        known = self._views.get(node.name)
        if known is None or known.node.labels != node.labels:
            slices = (*self._named.get(node.name, ()), *self._unnamed)
            pools = gather_pools(slices, node, self._of_pool)
            devices = tuple(device for pool in pools if pool.usable for device in pool.devices)
            known = NodeView(node, pools, devices, {pool.id: pool for pool in pools})
            self._views[node.name] = known
        return known
