"""Finds the set of units on a node whose end makes room for claims, and that kube-scheduler would prefer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kubernetes_rules.allocator.allocate import Allocator, PoolInvalid
from kubernetes_rules.preemption.ground import Ground, indexes
from kubernetes_rules.preemption.preference import Budgets, Cost, cost_of, importance
from kubernetes_rules.preemption.search import Search
from kubernetes_rules.preemption.units import Unit

Json = Mapping[str, Any]
Object = dict[str, Any]
Amounts = Mapping[str, int]

MOST_STEPS = 4_000
"""Devices and units tried before the search is given up."""


@dataclass(frozen=True, slots=True)
class Room:
    """Units on a node whose end lets claims fit there.

    ``allocations`` is ``status.allocation`` of each claim then. If not ``is_exact``, the search was given up:
    no unit can be left out, but a set that costs less may exist.
    """

    node: str
    units: tuple[Unit, ...]
    cost: Cost
    allocations: tuple[Object, ...]
    is_exact: bool = True


def smallest_room(
    allocator: Allocator,
    node: Json,
    wanted: Sequence[Json],
    units: Sequence[Unit],
    budgets: Budgets,
    lacks: Amounts | None = None,
    frees: Sequence[Amounts] = (),
) -> Room | None:
    """The units that cost least among those whose end lets the claims fit on a node; None if none do.

    ``wanted`` have no devices yet. ``units`` are those that may go; the ``allocator`` has everything that is
    allocated, and has it again afterwards. ``lacks`` is what the pod lacks of the node's other resources, and
    ``frees`` what each unit frees of them. If nobody has to go, the room has no units.
    Raises AllocationFailed as Allocator.allocate does, but not for a pool that is invalid.
    """
    fit = _Fit(allocator, node, wanted, units, lacks or {}, frees)
    everyone = (1 << len(units)) - 1
    now = fit.allocations(0)
    if now is not None:
        return fit.room(0, now, budgets)
    at_most = fit.allocations(everyone)
    if at_most is None:
        return None
    view = allocator.view(node)
    ground = Ground(allocator, view, units, budgets, frees)
    search = Search(ground, allocator.requested(view, wanted), allocator.selectors, lacks or {}, MOST_STEPS)
    is_exact = search.run()
    found = None if search.best is None else fit.allocations(search.best)
    if search.best is None or found is None:
        return fit.room(*_without_spare(fit, everyone, at_most), budgets, is_exact=False)
    if not is_exact:
        return fit.room(*_without_spare(fit, search.best, found), budgets, is_exact=False)
    return fit.room(search.best, found, budgets)


class _Fit:
    """Whether the claims fit once some units have gone, by Kubernetes' own rules for allocation."""

    def __init__(
        self,
        allocator: Allocator,
        node: Json,
        wanted: Sequence[Json],
        units: Sequence[Unit],
        lacks: Amounts,
        frees: Sequence[Amounts],
    ) -> None:
        self._allocator = allocator
        self._node = node
        self._wanted = wanted
        self.units = units
        self._lacks = lacks
        self._frees = frees

    def allocations(self, gone: int) -> list[Object] | None:
        """The allocations once these units have gone; None if the claims, or the pod, do not fit."""
        going = indexes(gone)
        for name, amount in self._lacks.items():
            if sum(self._frees[n].get(name, 0) for n in going) < amount:
                return None
        with without(self._allocator, [claim for n in going for claim in self.units[n].claims]):
            try:
                return self._allocator.allocate(self._node, self._wanted)
            except PoolInvalid:
                return None  # they do not fit now, but may fit without others

    def room(
        self, gone: int, allocations: Sequence[Object], budgets: Budgets, *, is_exact: bool = True
    ) -> Room:
        """The room if these units go."""
        going = tuple(self.units[n] for n in indexes(gone))
        name = str(self._node["metadata"]["name"])
        return Room(name, going, cost_of(going, budgets), tuple(allocations), is_exact)


def _without_spare(fit: _Fit, gone: int, found: list[Object]) -> tuple[int, list[Object]]:
    """The units of a set that are needed, and the allocations; ``found`` are those without the whole set.

    The most important ones stay if they can, as in kube-scheduler.
    """
    order = sorted(indexes(gone), key=lambda n: importance(fit.units[n]), reverse=True)
    while order:
        # As many as possible stay at a time: the first that has to go is found by halving.
        low, high = 0, len(order)
        while low < high:
            middle = (low + high + 1) // 2
            fitting = fit.allocations(gone & ~_set(order[:middle]))
            if fitting is not None:
                low, found = middle, fitting
            else:
                high = middle - 1
        gone &= ~_set(order[:low])
        order = order[low + 1 :]
    return gone, found


def _set(positions: Sequence[int]) -> int:
    found = 0
    for n in positions:
        found |= 1 << n
    return found


@contextmanager
def without(allocator: Allocator, claims: Sequence[Json]) -> Iterator[None]:
    """While it lasts, the allocator counts these allocated claims as free."""
    for claim in claims:
        allocator.release(claim)
    try:
        yield
    finally:
        for claim in claims:
            allocator.assume(claim)


@contextmanager
def within(allocator: Allocator, claims: Sequence[Json]) -> Iterator[None]:
    """While it lasts, the allocator counts these allocated claims as in use, too."""
    for claim in claims:
        allocator.assume(claim)
    try:
        yield
    finally:
        for claim in claims:
            allocator.release(claim)
