"""What units hold of a node: devices as a whole, shares, and counters; sets of units are bit masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from kubernetes_rules.allocator.allocate import Allocator
from kubernetes_rules.allocator.held import Share, claim_name, sum_of
from kubernetes_rules.allocator.pools import Available, NodeView
from kubernetes_rules.allocator.published import Device, Json, PoolId
from kubernetes_rules.preemption.units import Budgets, Charge, Unit, key_of, weight_of

_MOST_PODS = 2**20
_DIVISIBLE = 720_720
"""Divisible by all numbers up to 16, so that the prices of a unit that holds a few devices are exact."""

_COMPARED = 16
"""With so many cheaper ones each item is compared; more would only make the search shorter."""


class Price(NamedTuple):
    """A cost that is quick to compare: as Cost, with the sum of priorities and the number of pods in one.

    A component that is not known yet may be too small: then the price is a lower bound.
    """

    violations: int
    highest: int
    weight: int
    since: float


@dataclass(frozen=True, slots=True)
class Item:
    """Units, and what is free once all of them have gone, by name.

    If one of ``better`` stays, these stay as well: it frees as much for less.
    """

    units: int
    frees: Mapping[Any, int]
    better: int = 0


@dataclass(frozen=True, slots=True)
class Holders:
    """Who holds a device: ``whole`` are the units that hold it as a whole, None if one of its holders stays.

    ``shares`` are those of units, ``staying`` is the capacity of the shares that stay; ``stays``: there are
    some.
    """

    whole: int | None
    shares: tuple[Item, ...]
    staying: Share
    stays: bool

    @property
    def all(self) -> int | None:
        """The units that have to go until nobody holds any of it; None if somebody stays."""
        if self.whole is None or self.stays:
            return None
        found = self.whole
        for one in self.shares:
            found |= one.units
        return found


@dataclass(frozen=True, slots=True)
class CounterUse:
    """What is left of a pool's counters now, and what units give back once they have gone."""

    left: Available
    takers: tuple[Item, ...]


class HeldByUnits:
    """What units hold of one node, and what they free."""

    def __init__(
        self,
        allocator: Allocator,
        view: NodeView,
        units: Sequence[Unit],
        budgets: Budgets,
        frees: Sequence[Mapping[str, int]],
    ) -> None:
        """``frees`` is what each unit frees of the node's other resources."""
        self.view = view
        self.units = units
        self._allocator = allocator
        self._budgets = budgets
        self._bit_of = {claim_name(claim): 1 << n for n, unit in enumerate(units) for claim in unit.claims}
        self.keys = [key_of(unit) for unit in units]
        self.weights = [(weight_of(unit) * _MOST_PODS + len(unit.pods)) * _DIVISIBLE for unit in units]
        self._charges = [budgets.charge(unit) for unit in units]
        self._frees = frees
        self._holders: dict[Device, Holders] = {}
        self._counters: dict[PoolId, CounterUse] = {}
        self._prices: dict[int, Price] = {0: NOTHING}

    @cached_property
    def others(self) -> tuple[Item, ...]:
        """What units free of the node's other resources, the cheapest first.

        This comes after the devices, so that any two units can be compared.
        """
        items = [Item(1 << n, dict(one)) for n, one in enumerate(self._frees) if one]
        return self._with_better(items, lambda _: True)

    def price(self, units: int) -> Price:
        """What it costs if these units go."""
        known = self._prices.get(units)
        if known is None:
            going = indexes(units)
            highest, since = max(self.keys[n] for n in going)
            known = self._prices[units] = Price(
                self._budgets.violations(self._charges[n] for n in going),
                highest,
                sum(self.weights[n] for n in going),
                since,
            )
        return known

    def holders(self, device: Device) -> Holders:
        """Who holds a device."""
        known = self._holders.get(device)
        if known is None:
            known = self._holders[device] = self._find_holders(device)
        return known

    def _find_holders(self, device: Device) -> Holders:
        held = self._allocator.held
        whole: int | None = 0
        for name in held.exclusive.get(device.id, ()):
            bit = self._bit_of.get(name)
            whole = None if bit is None or whole is None else whole | bit
        shares: dict[int, list[Share]] = {}
        staying: list[Share] = []
        for name, share in held.shares.get(device.id, ()):
            bit = self._bit_of.get(name)
            (staying if bit is None else shares.setdefault(bit, [])).append(share)
        items = [Item(bit, sum_of(some)) for bit, some in shares.items()]
        return Holders(whole, self._with_better(items, self._holds_one), sum_of(staying), bool(staying))

    def _with_better(self, items: list[Item], comparable: Callable[[Item], bool]) -> tuple[Item, ...]:
        """The items, the cheapest first, each with those just before it that are better."""
        ordered = self.sorted_items(items)
        compared = [comparable(one) for one in ordered]
        found: list[Item] = []
        for n, item in enumerate(ordered):
            better = 0
            for before in range(max(0, n - _COMPARED), n if compared[n] else 0):
                if compared[before] and self._is_better(ordered[before], item):
                    better |= ordered[before].units
            found.append(Item(item.units, item.frees, better))
        return tuple(found)

    def _holds_one(self, item: Item) -> bool:
        """Whether the end of the unit frees nothing but a share of one device."""
        unit = self.units[item.units.bit_length() - 1]
        return sum(len(_results(claim)) for claim in unit.claims) == 1

    def _is_better(self, one: Item, other: Item) -> bool:
        """Whether to let one go is never worse than to let the other go."""
        a, b = one.units.bit_length() - 1, other.units.bit_length() - 1
        return (
            self.keys[a] <= self.keys[b]
            and self.weights[a] <= self.weights[b]
            and _takes_no_more(self._charges[a], self._charges[b])
            and all(one.frees.get(name, 0) >= amount for name, amount in other.frees.items())
            and (
                not self._frees
                or all(self._frees[a].get(name, 0) >= amount for name, amount in self._frees[b].items())
            )
        )

    def sorted_items(self, items: Sequence[Item]) -> list[Item]:
        """The items, the cheapest first."""
        return sorted(items, key=lambda one: (self.price(one.units), one.units))

    def counters(self, pool: PoolId) -> CounterUse:
        """The use of a pool's counters."""
        known = self._counters.get(pool)
        if known is None:
            left = self._allocator.counters.of(self.view, pool)
            found: dict[int, dict[Any, int]] = {}
            for device in self._allocator.counters.takers(self.view, pool):
                units = self.holders(device).all
                if units:
                    given = found.setdefault(units, {})
                    for counter, nanos in device.takes.items():
                        given[counter] = given.get(counter, 0) + nanos
            items = [Item(units, given) for units, given in found.items()]
            known = self._counters[pool] = CounterUse(left, tuple(self.sorted_items(items)))
        return known


NOTHING = Price(0, -(2**31), 0, float("-inf"))
"""The price if nobody goes."""


def indexes(units: int) -> list[int]:
    """The positions of the units in a set."""
    found = []
    while units:
        lowest = units & -units
        found.append(lowest.bit_length() - 1)
        units ^= lowest
    return found


def _takes_no_more(one: Charge, other: Charge) -> bool:
    there = dict(other.pods)
    return one.refused <= other.refused and all(there.get(index, 0) >= pods for index, pods in one.pods)


def _results(claim: Json) -> Sequence[Json]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or ()
