"""The devices chosen so far in one search, and the most that the others can give, so that it can end early.

The outlook is exact for what the counters of each GPU allow: which numbers of devices fit beside each
other. Elsewhere it may be too high, for a device that consumes counters of several sets, say. It is never
too low.
"""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import add, ge, itemgetter, sub
from typing import Any

from kubernetes_rules.allocator.held import Held, sum_of
from kubernetes_rules.allocator.pools import Available, CounterCache, NodeView, suffices, take
from kubernetes_rules.allocator.published import Amount, Device, DeviceId, PoolId
from kubernetes_rules.allocator.requests import Constraint, Request, values_of
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
        if self.in_use(claim, request, device.id) or self._is_shared_still(request, device):
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

    def _is_shared_still(self, request: Request, device: Device) -> bool:
        """Whether a device that is not offered in shares any more has one in use: 1.37 overlooks that."""
        exclusive = not device.allow_multiple and not request.admin_access
        return request.from_1_38 and exclusive and device.id in self._held.shares

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


Numbers = tuple[int, ...]
"""A number for each request, or for each counter of a set."""
Item = tuple[Numbers, frozenset[Numbers]]
"""A device: what it takes of each counter, and the numbers of devices or shares that it can give."""

_MOST_ANSWERS = 128
"""Of more than these only the highest number for each request is kept, as if all could be had together."""
_MOST_STATES = 4_000
"""If a set of counters can be left in more ways, its devices count as if they took nothing of it."""


class _TooManyStates(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Need:
    """What ``requests`` requests like this one need together: ``count`` devices.

    ``positions`` are those of the node's devices that match.
    """

    claim: int
    request: Request
    requests: int
    count: int
    positions: Sequence[int]


def may_suffice(view: NodeView, attempt: Attempt, needs: Sequence[Need]) -> bool:
    """Whether the node's devices may suffice for all needs beside what was chosen."""
    able: dict[Device, list[int]] = {}
    for number, need in enumerate(needs):
        for position in need.positions:
            device = view.devices[position]
            if attempt.allows(need.claim, need.request, device):
                able.setdefault(device, []).append(number)
    if not _distinct_enough(attempt, needs, able):
        return False
    wanted = tuple(need.count for need in needs)
    answers = list(_answers(attempt, needs, able, wanted))
    later = [(0,) * len(wanted)]
    for answer in reversed(answers):
        later.insert(0, tuple(map(add, later[0], map(max, zip(*answer, strict=True)))))
    total = frozenset([(0,) * len(wanted)])
    for answer, most in zip(answers, later[1:], strict=True):
        least = tuple(map(sub, wanted, most))
        total = _highest((one for one in _sum(total, answer) if all(map(ge, one, least))), wanted)
    return wanted in total


def _answers(
    attempt: Attempt, needs: Sequence[Need], able: Mapping[Device, Sequence[int]], wanted: Numbers
) -> Iterator[frozenset[Numbers]]:
    """What each device without counters can give, and then the devices of each counter set together."""
    sets: dict[tuple[PoolId, str], list[Item]] = {}
    lefts: dict[tuple[PoolId, str], Numbers] = {}
    for device, numbers in able.items():
        if device.allow_multiple:
            gives = _shares(attempt, device, numbers, needs, wanted)
        else:
            gives = frozenset(_unit(number, len(wanted)) for number in numbers)
        if not attempt.charged(device):
            yield gives
            continue
        name, _ = device.consumes[0]
        left, key = attempt.counters_of(device), (device.id.pool_id, name)
        counters = [counter for counter in left if counter[0] == name]
        lefts[key] = tuple(left[counter] for counter in counters)
        takes = tuple(device.takes.get(counter, 0) for counter in counters)
        sets.setdefault(key, []).append((takes, gives))
    for key, items in sets.items():
        # Sorted, so that devices of the same counters follow each other, and few states are left.
        yield _given_by_set(tuple(sorted(items, key=itemgetter(0))), lefts[key], wanted)


def _shares(
    attempt: Attempt, device: Device, numbers: Iterable[int], needs: Sequence[Need], wanted: Numbers
) -> frozenset[Numbers]:
    """The numbers of shares that a device can give; each request takes at most one of it."""
    left: Numbers = ()
    items: list[Item] = []
    for number in numbers:
        request = needs[number].request
        left = attempt.shares_left(request, device)
        takes = tuple(nanos for _, _, nanos, _ in request.demand_on(device).amounts)
        items += [(takes, frozenset([_unit(number, len(wanted))]))] * needs[number].requests
    return _given_by_set(tuple(items), left, wanted)


def _unit(number: int, length: int) -> Numbers:
    return tuple(int(n == number) for n in range(length))


def _distinct_enough(attempt: Attempt, needs: Sequence[Need], able: Mapping[Device, Sequence[int]]) -> bool:
    """Whether there are values enough for constraints by which no two devices have one in common."""
    counts: dict[int, int] = {}
    values: dict[int, set[Any]] = {}
    for number, need in enumerate(needs):
        for constraint in attempt.constraints_on(need.claim, need.request):
            if constraint.distinct:
                key = id(constraint)
                counts[key] = counts.get(key, 0) + need.count
                attributes = (
                    device.attribute(constraint.attribute) for device, some in able.items() if number in some
                )
                # An attribute without a value is accepted once.
                found = (values_of(one) or {None} for one in attributes if one is not None)
                values.setdefault(key, set()).update(*found)
    return all(counts[key] <= len(values[key]) for key in counts)


@lru_cache(maxsize=2048)
def _given_by_set(devices: tuple[Item, ...], left: Numbers, wanted: Numbers) -> frozenset[Numbers]:
    """What the devices of one counter set can give: the numbers of which no other answer has more."""
    known: dict[tuple[int, Numbers], frozenset[Numbers]] = {}
    most_taken = [(0,) * len(left)]
    for takes, _ in reversed(devices):
        most_taken.insert(0, tuple(map(add, most_taken[0], takes)))

    def given_from(position: int, left: Numbers) -> frozenset[Numbers]:
        if position == len(devices):
            return frozenset([(0,) * len(wanted)])
        # What is left of a counter beyond what all further devices take makes no difference.
        left = tuple(map(min, left, most_taken[position]))
        found = known.get((position, left))
        if found is None:
            if len(known) >= _MOST_STATES:
                raise _TooManyStates
            takes, gives = devices[position]
            found = given_from(position + 1, left)
            after = tuple(map(sub, left, takes))
            if min(after, default=0) >= 0:
                found = _highest(found | _sum(given_from(position + 1, after), gives), wanted)
            known[position, left] = found
        return found

    try:
        return given_from(0, left)
    except (_TooManyStates, RecursionError):
        most = [sum(max(one[n] for one in gives) for _, gives in devices) for n in range(len(wanted))]
        return frozenset([tuple(map(min, most, wanted))])


def _sum(some: Iterable[Numbers], others: frozenset[Numbers]) -> frozenset[Numbers]:
    return frozenset(tuple(map(add, one, other)) for one in some for other in others)


def _highest(answers: Iterable[Numbers], wanted: Numbers) -> frozenset[Numbers]:
    """The answers without those of which another has as much for every request, up to what is wanted."""
    kept: list[Numbers] = []
    for one in sorted({tuple(map(min, answer, wanted)) for answer in answers}, reverse=True):
        if not any(all(map(ge, other, one)) for other in kept):
            kept.append(one)
    if len(kept) > _MOST_ANSWERS:
        return frozenset([tuple(map(max, *kept))])
    return frozenset(kept)
