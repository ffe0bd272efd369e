"""The devices chosen for claims so far, and whether one more can be chosen beside them."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from kubernetes_rules.allocator.amounts import Amount
from kubernetes_rules.allocator.counters import Available, CounterCache, suffices, take
from kubernetes_rules.allocator.held import Held, sum_of
from kubernetes_rules.allocator.pools import NodeView
from kubernetes_rules.allocator.published import Device, DeviceId, PoolId
from kubernetes_rules.allocator.requests import Constraint, Request
from kubernetes_rules.errors import AllocationFailed
from kubernetes_rules.taints import untolerated_taint


@dataclass(frozen=True, slots=True)
class Choice:
    """A device chosen for a request.

    ``consumed`` and ``share_id`` are set if it is shared; ``charged``: it consumes its pool's counters.
    """

    request: Request
    device: Device
    share_id: str | None
    consumed: Mapping[str, Amount]
    charged: bool


class Attempt:
    """Devices chosen for claims so far. Choices are given up in the reverse order."""

    def __init__(
        self, view: NodeView, held: Held, available: CounterCache, constraints: list[list[Constraint]]
    ) -> None:
        self._view = view
        self._held = held
        self._available = available
        self._constraints = constraints
        self.chosen: list[list[Choice]] = [[] for _ in constraints]
        self._marked: dict[DeviceId, list[int]] = {}
        self._shares: dict[DeviceId, list[dict[str, int]]] = {}
        self._counters: dict[PoolId, Available] = {}

    def in_use(self, claim: int, request: Request, device: DeviceId) -> bool:
        """Whether a claim holds the device; for admin access, whether the same claim has it already."""
        if request.admin_access:
            return claim in self._marked.get(device, ())
        return device in self._held.exclusive or bool(self._marked.get(device))

    def has_capacity(self, request: Request, device: Device) -> bool:
        """Whether the device can give the capacity that is requested; see ``capacity.shortage``."""
        if not device.capacities and not request.capacity:
            return True
        wanted, taking = request.demand_on(device), self._shares.get(device.id)
        if taking is None and device.id not in self._held.shares:
            return wanted.possible
        return wanted.fits_beside(self._held.capacity_taken(device.id), sum_of(taking) if taking else {})

    def choose(self, claim: int, request: Request, device: Device, *, must: bool) -> bool:
        """Choose the device if every check allows it, else change nothing.

        Raises AllocationFailed as ``shortage`` does, and if ``must`` is set and a constraint excludes it.
        """
        if not self.allows(claim, request, device, must=must):
            return False
        for one in self.constraints_on(claim, request):
            one.add(device)
        self._record(claim, request, device)
        return True

    def allows(self, claim: int, request: Request, device: Device, *, must: bool = False) -> bool:
        """Whether every check allows the device beside what was chosen; raises as ``choose`` does."""
        if self.in_use(claim, request, device.id):
            return False
        if self.charged(device) and not suffices(self.counters_of(device), device):
            return False
        # Admin access needs tolerations and free counters like everybody else.
        if device.taints and untolerated_taint(device.taints, request.tolerations) is not None:
            return False
        if not all(one.allows(device) for one in self.constraints_on(claim, request)):
            if must:
                raise AllocationFailed(
                    f"claim {request.claim}, request {request.name}: a constraint excludes"
                    f" device {device.id}, but all devices are asked for",
                    "narrow the request's selectors, or drop the constraint",
                )
            return False
        return self.has_capacity(request, device)

    def charged(self, device: Device) -> bool:
        """Whether choosing the device takes counters: of a shared device, the first share takes them."""
        shared = device.allow_multiple and (device.id in self._held.shares or device.id in self._shares)
        return bool(device.consumes) and not shared

    def constraints_on(self, claim: int, request: Request) -> list[Constraint]:
        """The claim's constraints that are for the request, with what was chosen so far."""
        return [one for one in self._constraints[claim] if one.applies_to(request.names)]

    def shares_left(self, request: Request, device: Device) -> tuple[int, ...]:
        """What is left of the capacities that a share of the device takes, in billionths."""
        held, taking = self._held.capacity_taken(device.id), sum_of(self._shares.get(device.id, ()))
        return tuple(
            there - held.get(bare, 0) - taking.get(name, 0)
            for name, bare, _, there in request.demand_on(device).amounts
        )

    def _record(self, claim: int, request: Request, device: Device) -> None:
        share_id: str | None = None
        consumed: Mapping[str, Amount] = {}
        charged = self.charged(device)
        if charged:
            take(self.counters_of(device), device, 1)
        if device.allow_multiple:
            # Results of the same device are told apart by shareID, a fresh UUID for each.
            share_id, consumed = str(uuid.uuid4()), request.demand_on(device).taken
            share = {name: amount.nanos for name, amount in consumed.items()}
            self._shares.setdefault(device.id, []).append(share)
        else:
            self._marked.setdefault(device.id, []).append(claim)
        self.chosen[claim].append(Choice(request, device, share_id, consumed, charged))

    def give_up(self, claim: int) -> None:
        """Give up the claim's last choice."""
        choice = self.chosen[claim].pop()
        device = choice.device
        kept: dict[DeviceId, list[dict[str, int]]] | dict[DeviceId, list[int]]
        kept = self._shares if choice.share_id is not None else self._marked
        kept[device.id].pop()
        if not kept[device.id]:
            del kept[device.id]
        if choice.charged:
            take(self.counters_of(device), device, -1)
        for one in self._constraints[claim]:
            if one.applies_to(choice.request.names):
                one.remove()

    def counters_of(self, device: Device) -> Available:
        """What is left of the counters of the device's pool."""
        pool = device.id.pool_id
        left = self._counters.get(pool)
        if left is None:
            left = self._counters[pool] = dict(self._available.of(self._view, pool))
        return left

    def state(self, claim: int) -> Hashable:
        """Everything in the attempt that later choices for this claim and later claims depend on."""
        return (
            len(self.chosen[claim]),
            frozenset((device, len(claims), claim in claims) for device, claims in self._marked.items()),
            frozenset((device, tuple(sorted(sum_of(one).items()))) for device, one in self._shares.items()),
            tuple(one.state for one in self._constraints[claim]),
        )

    def use_of(self, device: Device) -> tuple[Hashable, ...]:
        """How the device is used now: by allocated claims, and in this attempt as a whole or in shares."""
        shares = self._shares.get(device.id)
        return (
            device.id in self._held.exclusive,
            tuple(self._marked.get(device.id, ())),
            device.id in self._held.shares,
            tuple(sorted(self._held.capacity_taken(device.id).items())),
            None if shares is None else tuple(sorted(sum_of(shares).items())),
        )
