"""Searches for devices depth first, over claims, requests and devices in order; the first solution counts.

The scheduler's allocator tries all combinations, 2^n of them for one device too many. This search has the
same result, but skips devices that the claims cannot tell apart from one that led nowhere. In a long search
it also skips requests that failed before while the same devices were taken.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from kubernetes_rules.allocator.amounts import Amount
from kubernetes_rules.allocator.counters import Available, CounterCache, suffices, take
from kubernetes_rules.allocator.held import Held, sum_of
from kubernetes_rules.allocator.pools import Matching, NodeView
from kubernetes_rules.allocator.published import Device, DeviceId, PoolId
from kubernetes_rules.allocator.requests import MOST_DEVICES, Constraint, Request, RequestedClaim
from kubernetes_rules.allocator.selector_results import SelectorResults
from kubernetes_rules.errors import AllocationFailed
from kubernetes_rules.taints import untolerated_taint

_MOST_TRIES = 200_000
"""Devices tried before the search is given up: some seconds. The scheduler has 10 s for a node."""
_EASY_TRIES = 100
"""Devices tried before failed states are remembered; most searches need fewer."""


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
        if self.in_use(claim, request, device.id):
            return False
        # The first share consumes the counters of the device, the others come with it.
        shared = device.allow_multiple and (device.id in self._held.shares or device.id in self._shares)
        charged = bool(device.consumes) and not shared
        if charged and not suffices(self._counters_of(device), device):
            return False
        # Admin access needs tolerations and free counters like everybody else.
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
        if not self.has_capacity(request, device):
            return False
        for one in constraints:
            one.add(device)
        self._record(claim, request, device, charged)
        return True

    def _record(self, claim: int, request: Request, device: Device, charged: bool) -> None:
        share_id: str | None = None
        consumed: Mapping[str, Amount] = {}
        if charged:
            take(self._counters_of(device), device, 1)
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
            take(self._counters_of(device), device, -1)
        for one in self._constraints[claim]:
            if one.applies_to(choice.request.names):
                one.remove()

    def _counters_of(self, device: Device) -> Available:
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


class TooManyDevices(Exception):
    """With the devices chosen so far, the claim's allocation has no room for the rest of its request."""


class Search:
    """One search for one node."""

    def __init__(
        self, view: NodeView, claims: Sequence[RequestedClaim], attempt: Attempt, selectors: SelectorResults
    ) -> None:
        self._view = view
        self._claims = claims
        self._attempt = attempt
        self._selectors = selectors
        self.selected: dict[tuple[int, int], Request] = {}
        """After success, the chosen request or subrequest, by the indexes of claim and request."""
        self._tries = 0
        self._failed: set[Hashable] = set()
        self._known_traits: dict[Device, Hashable] = {}
        self._candidates: dict[int, list[int] | None] = {}

    def run(self) -> bool:
        """Whether all claims fit; then the attempt has their devices. Raises AllocationFailed."""
        try:
            return self._request(0, 0)
        except TooManyDevices as error:
            raise AllocationFailed(
                f"the requests exceed the {MOST_DEVICES} devices that an allocation can hold", "ask for fewer"
            ) from error
        except RecursionError as error:
            raise AllocationFailed("the claims ask for too many devices at once", "ask for fewer") from error

    def selectable(self, request: Request, device: Device) -> bool:
        """Whether the selectors and the device's own node selection hold; raises AllocationFailed."""
        return self._selectors.first_false(device, request.selectors) is None and self._view.selects(device)

    def _request(self, claim: int, request: int) -> bool:
        """Allocate a request and all that comes after it."""
        if claim == len(self._claims):
            return True
        requests = self._claims[claim].requests
        if request == len(requests):
            try:
                return self._request(claim + 1, 0)
            # With other devices here, the next claim may take a smaller alternative.
            except TooManyDevices:
                return False
        # The rest of the search depends only on this state, so a state that failed once fails again.
        state = None
        if self._tries > _EASY_TRIES:
            state = claim, request, self._attempt.state(claim)
            if state in self._failed:
                return False
        done = self._one_alternative(claim, request)
        if not done and state is not None:
            self._failed.add(state)
        return done

    def _one_alternative(self, claim: int, request: int) -> bool:
        alternatives = self._claims[claim].requests[request]
        if alternatives[0].parent is None:
            self.selected[claim, request] = alternatives[0]
            return self._device(claim, request, alternatives[0], 0, 0)
        # KEP-4816: the first subrequest that fits together with all later requests is taken.
        exceeded = 0
        for alternative in alternatives:
            try:
                if self._device(claim, request, alternative, 0, 0):
                    self.selected[claim, request] = alternative
                    return True
            except TooManyDevices:
                exceeded += 1
        if exceeded == len(alternatives):
            raise TooManyDevices
        return False

    def _device(self, claim: int, index: int, request: Request, chosen: int, start: int) -> bool:
        """Allocate one more device of a request, beginning at a position, and all that comes after it."""
        # allocationMode All with no device that matches cannot be allocated.
        if request.takes_all and not request.every:
            return False
        if chosen >= request.count:
            return self._request(claim, index + 1)
        if request.count - chosen > MOST_DEVICES - len(self._attempt.chosen[claim]):
            raise TooManyDevices
        if request.takes_all:
            if not self._attempt.choose(claim, request, request.every[chosen], must=True):
                return False
            return self._go_on(claim, index, request, chosen, 0)
        return self._any_device(claim, index, request, chosen, start)

    def _any_device(self, claim: int, index: int, request: Request, chosen: int, start: int) -> bool:
        attempt, devices = self._attempt, self._view.devices
        failed: set[Hashable] = set()
        # Within a request only later devices are tried: combinations, not permutations.
        matching = self._matching(request)
        positions = matching.positions
        for position in positions[bisect_left(positions, start) :]:
            device = devices[position]
            if attempt.in_use(claim, request, device.id):
                continue
            if not (self._view.selects(device) if matching.certain else self.selectable(request, device)):
                continue
            if not attempt.has_capacity(request, device):
                continue
            if failed and self._fingerprint(device) in failed:
                continue
            self._count_try(request)
            if not attempt.choose(claim, request, device, must=False):
                continue
            if self._go_on(claim, index, request, chosen, position + 1):
                return True
            failed.add(self._fingerprint(device))
            if self._too_few(request, request.count - chosen, position + 1):
                return False
        return False

    def _matching(self, request: Request) -> Matching:
        """The devices of the node that the selectors match, or on which they fail."""
        known = self._view.matching.get(request.selectors)
        if known is None:
            positions, certain = [], True
            for position, device in enumerate(self._view.devices):
                try:
                    matches = self._selectors.first_false(device, request.selectors) is None
                except AllocationFailed:
                    # The scheduler fails the pod at this device, if the search comes that far.
                    matches, certain = True, False
                if matches:
                    positions.append(position)
            known = self._view.matching[request.selectors] = Matching(tuple(positions), certain)
        return known

    def _go_on(self, claim: int, index: int, request: Request, chosen: int, start: int) -> bool:
        """After a device was chosen, allocate all that comes after it; if that fails, give the device up."""
        try:
            done = self._device(claim, index, request, chosen + 1, start)
        except TooManyDevices:
            self._attempt.give_up(claim)
            raise
        if not done:
            self._attempt.give_up(claim)
        return done

    def _count_try(self, request: Request) -> None:
        self._tries += 1
        if self._tries > _MOST_TRIES:
            raise AllocationFailed(
                f"claim {request.claim}, request {request.name}: no answer after {_MOST_TRIES} combinations"
                f" on node {self._view.node.name}",
                "ask for fewer devices, or loosen the constraints",
            )

    def _fingerprint(self, device: Device) -> Hashable:
        """Equal for devices that are interchangeable now: one leads as far as the other."""
        return self._traits(device), self._attempt.use_of(device)

    def _traits(self, device: Device) -> Hashable:
        """Everything by which the claims' requests and constraints can tell devices apart."""
        known = self._known_traits.get(device)
        if known is None:
            known = self._known_traits[device] = (
                device.id.pool_id,
                device.allow_multiple,
                device.consumes,
                repr(device.taints),
                repr(device.spec.get("capacity")),
                tuple(self._answer(request, device) for request in self._all_requests()),
                tuple(
                    repr(device.attribute(one.attribute))
                    for claim in self._claims
                    for one in claim.constraints
                ),
                # For allocationMode All the order of devices decides between "does not fit" and an error.
                device.id if any(device in one.every for one in self._all_requests()) else None,
            )
        return known

    def _all_requests(self) -> list[Request]:
        return [one for claim in self._claims for alternatives in claim.requests for one in alternatives]

    def _answer(self, request: Request, device: Device) -> bool | None:
        try:
            return self.selectable(request, device)
        except AllocationFailed:
            return None

    def _too_few(self, request: Request, wanted: int, start: int) -> bool:
        """Whether fewer candidates than wanted are left from a position on; trying them is useless then."""
        key = id(request)
        if key not in self._candidates:
            self._candidates[key] = self._candidates_of(request)
        candidates = self._candidates[key]
        return candidates is not None and sum(position >= start for position in candidates) < wanted

    def _candidates_of(self, request: Request) -> list[int] | None:
        found = []
        for position in self._matching(request).positions:
            device = self._view.devices[position]
            try:
                if self.selectable(request, device):
                    self._attempt.has_capacity(request, device)
                    found.append(position)
            # The scheduler would meet this error and fail the pod, so such devices have to be tried.
            except AllocationFailed:
                return None
        return found
