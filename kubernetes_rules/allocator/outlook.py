"""The most that the devices of a node can give to several requests, so that a search can end early.

The answer is exact for what the counters of each GPU allow: which numbers of devices fit beside each other.
Elsewhere it may be too high, for a device that consumes counters of several sets, say. It is never too low.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import add, ge, itemgetter, sub
from typing import Any

from kubernetes_rules.allocator.attempt import Attempt
from kubernetes_rules.allocator.pools import NodeView
from kubernetes_rules.allocator.published import Device, PoolId
from kubernetes_rules.allocator.requests import Request, values_of

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
