"""Searches for the cheapest units that have to go: branch and bound over devices, not over sets of pods.

Each device that is chosen for a request forces units to go: those that hold it, and some of those that hold
too much of its capacity or of its pool's counters. A set only grows on the way, so that its price is a lower
bound. What can still be forced is estimated by the cheapest devices that are left; a unit that holds several
counts for each with a part of its price.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubernetes_rules.allocator.held import Demand
from kubernetes_rules.allocator.published import Device, DeviceId, PoolId
from kubernetes_rules.allocator.requests import MOST_DEVICES, Request, RequestedClaim, SelectorResults
from kubernetes_rules.errors import AllocationFailed
from kubernetes_rules.preemption.held_by_units import NOTHING, HeldByUnits, Item, Price, indexes
from kubernetes_rules.taints import untolerated_taint

Short = dict[Any, int]
"""How much is missing, by name."""

_Key = tuple[int, float]
_NO_KEY: _Key = (NOTHING.highest, NOTHING.since)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device that a request can have if units go.

    ``must`` are units that have to go in any case, ``touched`` all that hold something of what it needs.
    ``weight`` and ``key`` are lower bounds of what it costs while nobody of those has gone.
    """

    device: Device
    must: int
    touched: int
    weight: int
    key: _Key


class _Enough(Exception):
    """The search has taken too many steps."""


class Search:
    """One search on one node."""

    def __init__(
        self,
        held: HeldByUnits,
        claims: Sequence[RequestedClaim],
        selectors: SelectorResults,
        lacks: Mapping[str, int],
        most_steps: int,
    ) -> None:
        self._held = held
        self._claims = claims
        self._selectors = selectors
        self._lacks: Short = dict(lacks)
        self._constraints = [[one.unused() for one in claim.constraints] for claim in claims]
        self.best: int | None = None
        """The cheapest set of units that was found."""
        self._best_price: Price | None = None
        self._steps_left = most_steps
        self._gone = 0
        self._kept = 0
        self._marked: dict[DeviceId, list[int]] = {}
        self._demands: dict[DeviceId, list[Demand]] = {}
        self._charged: dict[PoolId, list[Device]] = {}
        self._number = [0] * len(claims)
        self._first = [0] * len(claims)
        self._like_before = [n > 0 and one.spec == claims[n - 1].spec for n, one in enumerate(claims)]
        self._candidates: dict[Hashable, list[Candidate]] = {}
        self._met: set[Hashable] = set()

    def run(self) -> bool:
        """Search; whether ``best`` is certain to be the best, since the search was not given up."""
        for request in self._requests():
            key = _kind(request)
            if key not in self._candidates:
                devices = request.every if request.takes_all else self._held.view.devices
                reached = [self._reach(request, device) for device in devices]
                found = [one for one in reached if one is not None]
                if request.takes_all:
                    self._candidates[key] = found if len(found) == len(devices) else []
                else:
                    self._candidates[key] = self._priced(request, found)
        try:
            self._request(0, 0)
        except (_Enough, RecursionError):
            return False
        return True

    def _requests(self) -> Iterator[Request]:
        for claim in self._claims:
            for alternatives in claim.requests:
                yield from alternatives

    # Requests and their devices.

    def _request(self, claim: int, index: int) -> None:
        if claim == len(self._claims):
            self._all_chosen()
            return
        requests = self._claims[claim].requests
        if index == len(requests):
            self._request(claim + 1, 0)
            return
        # All that can be found from a state was found, or was too expensive, when it was met first.
        state = self._state(claim, index)
        if state in self._met:
            return
        self._met.add(state)
        for one in requests[index]:
            candidates = self._candidates[_kind(one)]
            if one.count <= min(len(candidates), MOST_DEVICES - self._number[claim]) and (
                candidates or not one.takes_all
            ):
                # Claims that ask for the same can be exchanged: each begins where the one before began.
                like_before = index == 0 and self._like_before[claim] and len(requests[0]) == 1
                self._devices(claim, index, one, candidates, 0, self._first[claim - 1] if like_before else 0)

    def _state(self, claim: int, index: int) -> Hashable:
        """Everything that later choices depend on."""
        return (
            claim,
            index,
            self._gone,
            self._kept,
            self._number[claim],
            self._first[claim if index else claim - 1],
            frozenset((device, *claims) for device, claims in self._marked.items() if claims),
            frozenset(
                (device, tuple(sum(one.taken[name].nanos for one in some) for name in some[0].taken))
                for device, some in self._demands.items()
                if some
            ),
            tuple(one.state for one in self._constraints[claim]),
        )

    def _devices(
        self, claim: int, index: int, request: Request, candidates: list[Candidate], chosen: int, start: int
    ) -> None:
        """Choose the rest of a request's devices, from a position on, and all that comes after them."""
        if chosen == request.count:
            self._request(claim, index + 1)
            return
        rest = request.count - chosen
        if not self._may_be_better(self._outlook(claim, index, request, candidates, start, rest)):
            return
        last = start + 1 if request.takes_all else len(candidates) - rest + 1
        for position in range(start, last):
            candidate = candidates[position]
            device = candidate.device
            if candidate.must & self._kept or self._is_taken(claim, request, device):
                continue
            if not self._may_be_better(self._held.price(self._gone | candidate.must)):
                continue
            self._step()
            if index == 0 and chosen == 0:
                self._first[claim] = position
            for _ in self._ways(claim, request, candidate):
                self._devices(claim, index, request, candidates, chosen + 1, position + 1)

    def _is_taken(self, claim: int, request: Request, device: Device) -> bool:
        marked = self._marked.get(device.id, ())
        return claim in marked if request.admin_access else bool(marked)

    def _ways(self, claim: int, request: Request, candidate: Candidate) -> Iterator[None]:
        """Take the device, and let go whoever has to go, in each way that this can be done."""
        device = candidate.device
        constraints = [one for one in self._constraints[claim] if one.applies_to(request.names)]
        if not all(one.allows(device) for one in constraints):
            return
        before = self._gone
        self._gone |= candidate.must
        for one in constraints:
            one.add(device)
        self._number[claim] += 1
        demand = request.demand_on(device)
        if device.allow_multiple:
            self._demands.setdefault(device.id, []).append(demand)
        else:
            self._marked.setdefault(device.id, []).append(claim)
        if device.consumes:
            self._charged.setdefault(device.id.pool_id, []).append(device)
        shares = self._held.holders(device).shares
        for _ in self._covered(lambda: self._short_of_capacity(device, demand), shares):
            yield from self._counters_covered(device.id.pool_id)
        if device.consumes:
            self._charged[device.id.pool_id].pop()
        (self._demands if device.allow_multiple else self._marked)[device.id].pop()
        self._number[claim] -= 1
        for one in constraints:
            one.remove()
        self._gone = before

    def _all_chosen(self) -> None:
        """Every request has its devices: let go whoever else has to, and keep the set if it is the best."""
        for _ in self._covered(self._short_of_others, self._held.others):
            price = self._held.price(self._gone)
            if self._best_price is None or price < self._best_price:
                self.best, self._best_price = self._gone, price

    def _step(self, items: int = 0) -> None:
        """Count a step, which takes longer with many items."""
        self._steps_left -= 1 + items // 32
        if self._steps_left < 0:
            raise _Enough

    # What is missing, and who can go for it.

    def _short_of_capacity(self, device: Device, demand: Demand) -> Short:
        demands = self._demands.get(device.id) or (demand,)
        holders = self._held.holders(device)
        short: Short = {}
        for name, bare, _, there in demand.amounts:
            used = holders.staying.get(bare, 0) + sum(one.taken[name].nanos for one in demands)
            used += sum(one.frees.get(bare, 0) for one in holders.shares if not one.units & self._gone)
            if used > there:
                short[bare] = used - there
        return short

    def _counters_covered(self, pool: PoolId) -> Iterator[None]:
        if not self._charged.get(pool):
            yield
            return
        yield from self._covered(lambda: self._short_of_counters(pool), self._held.counters(pool).takers)

    def _short_of_counters(self, pool: PoolId) -> Short:
        use = self._held.counters(pool)
        left = dict(use.left)
        charged = 0
        for device in dict.fromkeys(self._charged[pool]):
            times = self._charged[pool].count(device)
            if device.allow_multiple:
                # The first share takes the counters of the device, the others come with it.
                holders = self._held.holders(device)
                times = not (holders.stays or any(not one.units & self._gone for one in holders.shares))
            charged += times
            for counter, nanos in device.takes.items():
                left[counter] -= times * nanos
        if not charged:
            return {}
        for taker in use.takers:
            if taker.units & self._gone == taker.units:
                for counter, nanos in taker.frees.items():
                    left[counter] += nanos
        # One counter below zero blocks the whole pool, whoever consumes it.
        return {counter: -nanos for counter, nanos in left.items() if nanos < 0}

    def _short_of_others(self) -> Short:
        going = [one for one in self._held.others if one.units & self._gone]
        short = {
            name: amount - sum(one.frees.get(name, 0) for one in going)
            for name, amount in self._lacks.items()
        }
        return {name: amount for name, amount in short.items() if amount > 0}

    def _covered(self, missing: Callable[[], Short], items: Sequence[Item]) -> Iterator[None]:
        """Let units go until nothing is missing, in each way once; units that stay are kept on that way."""
        short = missing()
        if not short:
            yield
            return
        usable = [
            one
            for one in items
            if one.units & ~self._gone
            and not one.units & self._kept
            and any(one.frees.get(name, 0) > 0 for name in short)
        ]
        gone, kept = self._gone, self._kept
        for position, item in enumerate(usable):
            if not item.better & self._kept:
                if not self._can_cover(short, usable[position:]):
                    break
                self._step(len(usable))
                self._gone = gone | item.units
                if self._may_be_better(self._held.price(self._gone)):
                    yield from self._covered(missing, items)
                self._gone = gone
            if item.units.bit_count() == 1:
                self._kept |= item.units
        self._kept = kept

    def _can_cover(self, short: Short, usable: Sequence[Item]) -> bool:
        """Whether these units free enough, and at a price that can be better than the best."""
        for name, amount in short.items():
            if sum(one.frees.get(name, 0) for one in usable) < amount:
                return False
        if self._best_price is None or any(one.units.bit_count() > 1 for one in usable):
            return True
        now = self._held.price(self._gone)
        weight, key = self._least(short, usable, self._held.weights)
        highest, since = max((now.highest, now.since), key)
        return self._may_be_better(Price(now.violations, highest, now.weight + weight, since))

    def _least(
        self, short: Short, items: Sequence[Item], weights: Sequence[int] | Mapping[int, int]
    ) -> tuple[int, _Key]:
        """A lower bound of weight and key of units that free what is missing; each item is one unit."""
        least, key = 0, _NO_KEY
        for name, amount in short.items():
            giving = [
                (weights[n], self._held.keys[n], frees)
                for one in items
                if (frees := one.frees.get(name, 0)) > 0
                for n in [one.units.bit_length() - 1]
            ]
            weight, left = 0, amount
            for own, _, frees in sorted(giving, key=lambda one: one[0] / one[2]):
                if left <= 0:
                    break
                weight += own if frees <= left else own * left // frees
                left -= frees
            least = max(least, weight)
            left = amount
            for _, own_key, frees in sorted(giving, key=lambda one: one[1]):
                left -= frees
                if left <= 0:
                    key = max(key, own_key)
                    break
        return least, key

    # Lower bounds.

    def _may_be_better(self, price: Price) -> bool:
        return self._best_price is None or price < self._best_price

    def _outlook(
        self, claim: int, index: int, request: Request, candidates: Sequence[Candidate], start: int, rest: int
    ) -> Price:
        """A lower bound of the price of all sets that can still be found from here."""
        now = self._held.price(self._gone)
        if self._best_price is None or request.takes_all:
            return now
        found = [now, self._with_cheapest(now, candidates[start:], rest)]
        more = self._later(claim, index, request)
        if more:
            free = [one for one in candidates if not self._marked.get(one.device.id)]
            found.append(self._with_cheapest(now, free, rest + more))
        return max(found)

    def _with_cheapest(self, now: Price, candidates: Sequence[Candidate], count: int) -> Price:
        if len(candidates) < count:
            return Price(2**31, 0, 0, 0.0)  # it cannot be done
        untouched = [one for one in candidates if not one.touched & self._gone]
        count -= len(candidates) - len(untouched)
        if count <= 0:
            return now
        weight = sum(heapq.nsmallest(count, [one.weight for one in untouched]))
        key = heapq.nsmallest(count, [one.key for one in untouched])[-1]
        highest, since = max((now.highest, now.since), key)
        return Price(now.violations, highest, now.weight + weight, since)

    def _later(self, claim: int, index: int, request: Request) -> int:
        """How many devices later requests need that ask for the same kind."""
        if request.admin_access or any(one.device.allow_multiple for one in self._candidates[_kind(request)]):
            return 0
        found = 0
        for number, one in enumerate(self._claims[claim:], claim):
            for alternatives in one.requests[index + 1 if number == claim else 0 :]:
                if (
                    len(alternatives) == 1
                    and not alternatives[0].takes_all
                    and _kind(alternatives[0]) == _kind(request)
                ):
                    found += alternatives[0].count
        return found

    # Candidates.

    def _reach(self, request: Request, device: Device) -> Candidate | None:
        """The device as a candidate, still without its price; None if it cannot be had whoever goes."""
        held, demand = self._held, self._demand(request, device)
        if demand is None:
            return None
        holders = held.holders(device)
        must: int | None = 0 if request.admin_access else holders.whole
        if must is None:
            return None
        touched = must
        short = self._short_of_capacity(device, demand)
        if short:
            must = _forced(short, holders.shares, must)
            for one in holders.shares:
                touched |= one.units
        if (
            must is not None
            and device.consumes
            and not (device.allow_multiple and (holders.stays or holders.shares))
        ):
            use = held.counters(device.id.pool_id)
            missing: Short = {}
            for counter, nanos in use.left.items():
                over = device.takes.get(counter, 0) - nanos
                if over > 0:
                    missing[counter] = over
            must = _forced(missing, use.takers, must)
            for one in use.takers:
                if any(one.frees.get(counter) for counter in missing):
                    touched |= one.units
        return None if must is None else Candidate(device, must, touched | must, 0, _NO_KEY)

    def _demand(self, request: Request, device: Device) -> Demand | None:
        """What the request takes of the device; None if it could not have it even if nobody else did."""
        if device.taints and untolerated_taint(device.taints, request.tolerations) is not None:
            return None
        try:
            if self._selectors.first_false(device, request.selectors) is not None:
                return None
            demand = request.demand_on(device)
            return demand if demand.possible and self._held.view.selects(device) else None
        except AllocationFailed:
            return None  # the scheduler fails the pod if it comes to this device

    def _priced(self, request: Request, reached: Sequence[Candidate]) -> list[Candidate]:
        """The candidates with their prices, the cheapest first."""
        held = self._held
        times: dict[int, int] = {}
        for one in reached:
            for n in indexes(one.touched):
                times[n] = times.get(n, 0) + 1
        parts = {n: held.weights[n] // number for n, number in times.items()}
        found = []
        for one in reached:
            going = indexes(one.must)
            weight = sum(parts[n] for n in going)
            key = max((held.keys[n] for n in going), default=_NO_KEY)
            shares = held.holders(one.device).shares
            if shares:
                short = self._short_of_capacity(one.device, request.demand_on(one.device))
                for share in shares:
                    if share.units & one.must:
                        short = {
                            name: left
                            for name, amount in short.items()
                            if (left := amount - share.frees.get(name, 0)) > 0
                        }
                more, other = self._least(
                    short, [share for share in shares if not share.units & one.must], parts
                )
                weight, key = weight + more, max(key, other)
            found.append(Candidate(one.device, one.must, one.touched, weight, key))
        return sorted(
            found, key=lambda one: (held.price(one.must).violations, one.key[0], one.weight, one.key[1])
        )


def _forced(short: Short, items: Sequence[Item], must: int) -> int | None:
    """``must``, and the units without which too little is freed; None if too little is freed by all."""
    for name, amount in short.items():
        freed = sum(one.frees.get(name, 0) for one in items)
        if freed < amount:
            return None
        for one in items:
            if freed - one.frees.get(name, 0) < amount:
                must |= one.units
    return must


def _kind(request: Request) -> Any:
    """Equal for requests that can have the same devices at the same price."""
    capacity = tuple(sorted((name, amount.nanos) for name, amount in request.capacity.items()))
    return request.selectors, repr(request.tolerations), capacity, request.admin_access, request.takes_all
