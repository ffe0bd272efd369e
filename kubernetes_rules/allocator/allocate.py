"""Decides which devices of a node claims get, as the scheduler's structured allocator decides it.

The rules are those of k8s.io/dynamic-resource-allocation 0.37 with the feature gates that are on by
default: admin access, prioritized lists, partitionable devices, device taints, consumable capacity,
binding conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kubernetes_rules.allocator.attempt import Attempt, CounterBook
from kubernetes_rules.allocator.capacity import shortage
from kubernetes_rules.allocator.failure import AllocationFailed, PoolInvalid
from kubernetes_rules.allocator.gates import SelectorResults
from kubernetes_rules.allocator.held import Held
from kubernetes_rules.allocator.node_view import NodeView, NodeViews
from kubernetes_rules.allocator.published import Device, Json, read_slice
from kubernetes_rules.allocator.requests import Request, RequestedClaim, check_limit, read_claim
from kubernetes_rules.allocator.results import allocation_result
from kubernetes_rules.allocator.search import Search
from kubernetes_rules.node_selectors import read_node

__all__ = ["AllocationFailed", "Allocator", "PoolInvalid"]


class Allocator:
    """Allocates from one set of slices; what is in use changes with ``assume`` and ``release``.

    All objects are JSON as the API serves it, with its defaults. They are kept, not copied: do not change
    them. Not thread-safe.
    """

    def __init__(self, slices: Iterable[Json], classes: Iterable[Json], allocated: Iterable[Json]) -> None:
        """``slices`` are ResourceSlices, ``classes`` DeviceClasses, ``allocated`` ResourceClaims in use.

        Raises AllocationFailed when one of them is malformed.
        """
        self.held = Held()
        """What is in use, for reading."""
        self.selectors = SelectorResults()
        """What selectors say of the devices, for reading."""
        self._views = NodeViews([read_slice(one) for one in slices])
        self.counters = CounterBook(self.held)
        """What is left of the counters of pools, for reading."""
        self._classes: dict[str, Json] = {}
        for one in classes:
            self._classes.setdefault((one.get("metadata") or {}).get("name") or "", one)
        for claim in allocated:
            self.held.add(claim)

    def assume(self, claim: Json) -> None:
        """Account for an allocated claim; raises AllocationFailed if its allocation is malformed."""
        self.counters.forget(self.held.add(claim))

    def release(self, claim: Json) -> None:
        """Forget an allocated claim; raises AllocationFailed if it was never accounted for."""
        self.counters.forget(self.held.remove(claim))

    def view(self, node: Json) -> NodeView:
        """The pools and devices of a node; raises AllocationFailed for a malformed node selector."""
        return self._views.view(read_node(node))

    def requested(self, view: NodeView, claims: Iterable[Json]) -> list[RequestedClaim]:
        """The claims, read and checked for a node; raises AllocationFailed as ``allocate`` does."""
        read = []
        for claim in claims:
            one = read_claim(claim, self._classes)
            if any(request.takes_all for alternatives in one.requests for request in alternatives):
                one = self._with_all(view, one)
            check_limit(one)
            read.append(one)
        return read

    def allocate(self, node: Json, claims: Sequence[Json]) -> list[dict[str, Any]] | None:
        """``status.allocation`` of each claim, in order; None when they do not fit on the node.

        Raises AllocationFailed when that cannot be decided: something is malformed or not known, a selector
        fails, all devices of a pool in mid-update are asked for, or a pool is invalid and nothing else fits.
        Nothing is accounted for: see ``assume``.
        """
        view = self.view(node)
        read = self.requested(view, claims)
        attempt = Attempt(view, self.held, self.counters, [one.constraints for one in read])
        search = Search(view, read, attempt, self.selectors)
        if search.run():
            return [
                allocation_result(
                    view, claim, choices, [search.selected[index, i] for i in range(len(claim.requests))]
                )
                for index, (claim, choices) in enumerate(zip(read, attempt.chosen, strict=True))
            ]
        for pool in view.pools:
            if pool.invalid is not None:
                raise PoolInvalid(
                    f"the claims do not fit on node {view.node.name}, where pool {pool.id} is invalid:"
                    f" {pool.invalid}",
                    "correct its driver",
                )
        return None

    def _with_all(self, view: NodeView, claim: RequestedClaim) -> RequestedClaim:
        requests = tuple(
            tuple(
                request.with_devices(self._every(view, request)) if request.takes_all else request
                for request in alternatives
            )
            for alternatives in claim.requests
        )
        return RequestedClaim(claim.name, claim.spec, requests, claim.constraints)

    def _every(self, view: NodeView, request: Request) -> tuple[Device, ...]:
        """All devices that match and have the capacity; whether they are in use or tainted comes later."""
        return tuple(
            device
            for device in view.all_devices()
            if self.selectors.first_false(device, request.selectors) is None
            and view.selects(device)
            and shortage(device, request.capacity, {}, {}) is None
        )
