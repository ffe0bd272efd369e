"""Searches for devices depth first, over claims, requests and devices in order; the first solution counts.

The scheduler's allocator tries all combinations, 2^n of them for one device too many. This search has the
same result, but skips devices that the claims cannot tell apart from one that led nowhere. A long search
also skips requests that failed before while the same devices were taken, and looks ahead: it turns round
where the devices that are left can't suffice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import replace

from kubernetes_rules.allocator.attempt import Attempt, Need, may_suffice
from kubernetes_rules.allocator.pools import Matching, NodeView
from kubernetes_rules.allocator.published import Device
from kubernetes_rules.allocator.requests import MOST_DEVICES, Request, RequestedClaim, SelectorResults
from kubernetes_rules.errors import AllocationFailed

_MOST_TRIES = 2_000
"""Devices tried before the search is given up: some seconds. The scheduler has 10 s for a node."""
EASY_TRIES = 100
"""Devices tried before the search looks ahead and remembers failed states; most searches need fewer."""
_TRIES_OF_A_LOOK = 2
"""Looking ahead takes as long as so many devices that are tried."""
_MOST_WAYS, _MOST_KINDS = 16, 4
"""How many choices among alternatives, and how many kinds of requests, the search looks ahead to."""


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
        self._matches: dict[int, list[int] | None] = {}
        self._needs_after: dict[tuple[int, int], list[list[Need]]] = {}

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
        if self._tries > EASY_TRIES:
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
        if not self._may_fit(claim, index, request, chosen, start):
            return False
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
            if not self._may_fit(claim, index, request, chosen, position + 1):
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
                f"claim {request.claim}, request {request.name}: there are too many ways to try on node"
                f" {self._view.node.name}",
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

    def _may_fit(self, claim: int, index: int, request: Request, chosen: int, start: int) -> bool:
        """Whether the devices from a position on may suffice for the rest of a request and all after it."""
        if self._tries <= EASY_TRIES:
            return True
        candidates = self._candidates(request)
        if candidates is None:
            return True
        self._tries += _TRIES_OF_A_LOOK
        rest = candidates[bisect_left(candidates, start) :]
        need = Need(claim, request, 1, request.count - chosen, rest)
        return any(
            may_suffice(self._view, self._attempt, [need, *later]) for later in self._later(claim, index)
        )

    def _later(self, claim: int, index: int) -> list[list[Need]]:
        """What the requests after this one need, for each choice among their alternatives."""
        found = self._needs_after.get((claim, index))
        if found is None:
            after = [
                (number, alternatives)
                for number, one in enumerate(self._claims[claim:], claim)
                for alternatives in one.requests[index + 1 if number == claim else 0 :]
            ]
            ways: list[list[tuple[int, Request]]] = [[]]
            for number, alternatives in after:
                if len(ways) * len(alternatives) > _MOST_WAYS or any(
                    self._may_fail(number, request) for request in alternatives
                ):
                    break
                ways = [[*way, (number, request)] for way in ways for request in alternatives]
            found = self._needs_after[claim, index] = [self._added_up(way) for way in ways]
        return found

    def _may_fail(self, claim: int, request: Request) -> bool:
        """Whether the scheduler may fail the pod at the request, before it sees what comes after."""
        must = request.takes_all and self._attempt.constraints_on(claim, request)
        return bool(must) or self._candidates(request) is None

    def _added_up(self, way: Sequence[tuple[int, Request]]) -> list[Need]:
        """The needs of requests, those of requests that can have the same devices as one."""
        needs: dict[Hashable, Need] = {}
        for claim, request in way:
            # Claims with admin access may have the same devices.
            if request.admin_access:
                continue
            constraints = self._attempt.constraints_on(claim, request)
            capacity = tuple(sorted((name, amount.nanos) for name, amount in request.capacity.items()))
            alike = request.selectors, request.every, repr(request.tolerations), capacity
            key = alike, tuple(map(id, constraints))
            known = needs.get(key, Need(claim, request, 0, 0, self._candidates(request) or ()))
            # Of no device at all there is one too few.
            count = max(1, request.count) if request.takes_all else request.count
            needs[key] = replace(known, requests=known.requests + 1, count=known.count + count)
        return list(needs.values())[:_MOST_KINDS]

    def _candidates(self, request: Request) -> list[int] | None:
        """The positions of the devices that match; None if the scheduler fails the pod at one of them."""
        key = id(request)
        if key not in self._matches:
            try:
                self._matches[key] = [
                    position
                    for position in self._matching(request).positions
                    if not request.takes_all or self._view.devices[position] in request.every
                    if self.selectable(request, device := self._view.devices[position])
                    and request.demand_on(device).possible
                ]
            except AllocationFailed:
                self._matches[key] = None
        return self._matches[key]
