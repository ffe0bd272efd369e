"""The state of one attempt to allocate: what is chosen so far, and choosing and giving up one device."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from kubernetes_rules.allocator.amounts import Amount
from kubernetes_rules.allocator.capacity import Shortage, consumption, shortage
from kubernetes_rules.allocator.constraints import Constraint
from kubernetes_rules.allocator.counters import Available, available_counters, exhausted, take
from kubernetes_rules.allocator.failure import AllocationFailed
from kubernetes_rules.allocator.held import Held, sum_of
from kubernetes_rules.allocator.node_view import NodeView
from kubernetes_rules.allocator.published import Device, DeviceId, PoolId
from kubernetes_rules.allocator.requests import Request
from kubernetes_rules.tolerations import untolerated_taint


@dataclass(frozen=True, slots=True)
class Choice:
    """A device chosen for a request; ``consumed`` and ``share_id`` are set if it is shared."""

    request: Request
    device: Device
    share_id: str | None
    consumed: Mapping[str, Amount]
    charged: bool


class CounterBook:
    """What held devices leave of the counters of pools, worked out once per pool until something changes."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._left: dict[PoolId, Available] = {}

    def of(self, view: NodeView, pool: PoolId) -> Available:
        """The counters of a pool; every node that sees it sees the same."""
        left = self._left.get(pool)
        if left is None:
            left = self._left[pool] = available_counters(view.pool_of[pool], self._held)
        return left

    def forget(self, pools: set[PoolId]) -> None:
        """Devices of these pools were taken or given back."""
        for pool in pools:
            self._left.pop(pool, None)


class Attempt:
    """Devices chosen for claims so far. Choices are given up in the opposite order."""

    def __init__(
        self, view: NodeView, held: Held, book: CounterBook, constraints: list[list[Constraint]]
    ) -> None:
        self._view = view
        self._held = held
        self._book = book
        self._constraints = constraints
        self.chosen: list[list[Choice]] = [[] for _ in constraints]
        self._marked: dict[DeviceId, list[int]] = {}
        self._shares: dict[DeviceId, list[dict[str, int]]] = {}
        self._counters: dict[PoolId, Available] = {}

    def in_use(self, claim: int, request: Request, device: DeviceId) -> bool:
        """Whether somebody holds it; for admin access, whether the claim itself has it already."""
        if request.admin_access:
            return claim in self._marked.get(device, ())
        return device in self._held.exclusive or bool(self._marked.get(device))

    def capacity_shortage(self, request: Request, device: Device) -> Shortage | None:
        """See ``capacity.shortage``."""
        if not device.capacities and not request.capacity:
            return None
        taking = self._shares.get(device.id)
        held = self._held.capacity_taken(device.id)
        return shortage(device, request.capacity, held, sum_of(taking) if taking else {})

    def choose(self, claim: int, request: Request, device: Device, *, must: bool) -> bool:
        """Choose the device if nothing stands against it, else leave all as it was.

        Raises AllocationFailed if ``must`` and a constraint stands against it, or as capacity does.
        """
        if self.in_use(claim, request, device.id):
            return False
        shared = device.allow_multiple and (device.id in self._held.shares or device.id in self._shares)
        charged = bool(device.consumes) and not shared
        if charged and exhausted(self._counters_of(device), device):
            return False
        if device.taints and untolerated_taint(device.taints, request.tolerations) is not None:
            return False
        constraints = [one for one in self._constraints[claim] if one.applies_to(request.names)]
        if not all(one.allows(device) for one in constraints):
            if must:
                raise AllocationFailed(
                    f"claim {request.claim}, request {request.name}: a constraint excludes"
                    f" device {device.id}, but all devices are asked for",
                    "narrow the request's selectors, or drop the constraint",
                )
            return False
        if self.capacity_shortage(request, device) is not None:
            return False
        for one in constraints:
            one.add(device)
        self._record(claim, request, device, charged)
        return True

    def _record(self, claim: int, request: Request, device: Device, charged: bool) -> None:
        share_id, consumed = None, {}
        if charged:
            take(self._counters_of(device), device, 1)
        if device.allow_multiple:
            share_id, consumed = str(uuid.uuid4()), consumption(device, request.capacity)
            share = {name: amount.nanos for name, amount in consumed.items()}
            self._shares.setdefault(device.id, []).append(share)
        else:
            self._marked.setdefault(device.id, []).append(claim)
        self.chosen[claim].append(Choice(request, device, share_id, consumed, charged))

    def give_up(self, claim: int) -> None:
        """Give up what was chosen last for the claim."""
        choice = self.chosen[claim].pop()
        device = choice.device
        kept: dict[DeviceId, list[dict[str, int]]] | dict[DeviceId, list[int]]
        kept = self._shares if choice.share_id is not None else self._marked
        kept[device.id].pop()
        if not kept[device.id]:
            del kept[device.id]
        if choice.charged:
            take(self._counters_of(device), device, -1)
        for one in self._constraints[claim]:
            if one.applies_to(choice.request.names):
                one.remove()

    def _counters_of(self, device: Device) -> Available:
        pool = device.id.pool_id
        left = self._counters.get(pool)
        if left is None:
            left = self._counters[pool] = dict(self._book.of(self._view, pool))
        return left

    def state(self, claim: int) -> Hashable:
        """All of the attempt that what is still to come for a claim, and for later ones, depends on."""
        return (
            len(self.chosen[claim]),
            frozenset((device, len(claims), claim in claims) for device, claims in self._marked.items()),
            frozenset((device, tuple(sorted(sum_of(one).items()))) for device, one in self._shares.items()),
            tuple(one.state for one in self._constraints[claim]),
        )

    def standing(self, device: Device) -> tuple[Hashable, ...]:
        """What tells the device's use apart from others: held, marked and shared, as it is now."""
        shares = self._shares.get(device.id)
        return (
            device.id in self._held.exclusive,
            tuple(self._marked.get(device.id, ())),
            device.id in self._held.shares,
            tuple(sorted(self._held.capacity_taken(device.id).items())),
            None if shares is None else tuple(sorted(sum_of(shares).items())),
        )
