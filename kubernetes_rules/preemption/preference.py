"""Compares sets of victims as kube-scheduler does, and counts which of them a disruption budget protects.

Go: pickOneNodeForPreemption and MoreImportantVictim in scheduler/framework/preemption.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from kubernetes_rules.disruption_budgets import (
    budget_selects,
    is_processed,
    may_evict_unready,
    may_ignore_budgets,
)
from kubernetes_rules.preemption.units import Unit

Json = Mapping[str, Any]

_OFFSET = 2**31
"""Added to each priority, so that fewer pods of a negative priority count less than more of them."""

NOT_STARTED = float("-inf")


class Cost(NamedTuple):
    """What a set of victims costs; of two sets the smaller cost is preferred.

    ``violations`` is how many pods the Eviction API would refuse because of a budget, ``highest`` the highest
    priority, ``total`` the sum of the priorities, each with 2**31 added, and ``pods`` their number.
    ``since`` is the earliest start of the pods with the highest priority, as negative seconds since 1970: the
    latest start is preferred.
    """

    violations: int
    highest: int
    total: int
    pods: int
    since: float


NOBODY = Cost(0, -_OFFSET, 0, 0, NOT_STARTED)
"""The cost if nobody has to go."""


class Charge(NamedTuple):
    """What the end of a unit takes of budgets: how many pods of each, by the budget's index.

    ``refused`` are the pods that may not be evicted at all: the Eviction API refuses a pod with two budgets.
    """

    refused: int
    pods: tuple[tuple[int, int], ...]


class Budgets:
    """The PodDisruptionBudgets of a cluster, and how many evictions they allow now."""

    def __init__(self, budgets: Iterable[Json] = ()) -> None:
        self._in: dict[str, list[tuple[int, Json]]] = {}
        self._allowed: list[int] = []
        self._charges: dict[Unit, Charge] = {}
        for index, budget in enumerate(budgets):
            self._in.setdefault(str(budget["metadata"]["namespace"]), []).append((index, budget))
            # The API server refuses evictions until the controller has seen the newest budget.
            allowed = (budget.get("status") or {}).get("disruptionsAllowed", 0) if is_processed(budget) else 0
            self._allowed.append(max(0, allowed))

    def charge(self, unit: Unit) -> Charge:
        """What the end of a unit takes of the budgets."""
        known = self._charges.get(unit)
        if known is None:
            counted: Counter[int] = Counter()
            refused = 0
            for pod in unit.pods:
                charged = self._of(pod)
                refused += len(charged) > 1
                if len(charged) == 1:
                    counted[charged[0]] += 1
            known = self._charges[unit] = Charge(refused, tuple(sorted(counted.items())))
        return known

    def violations(self, charges: Iterable[Charge]) -> int:
        """How many pods of a set of units the Eviction API would refuse."""
        refused, counted = 0, Counter[int]()
        for charge in charges:
            refused += charge.refused
            for index, pods in charge.pods:
                counted[index] += pods
        return refused + sum(max(0, pods - self._allowed[index]) for index, pods in counted.items())

    def _of(self, pod: Json) -> list[int]:
        if may_ignore_budgets(pod):
            return []
        selecting = [
            (index, budget)
            for index, budget in self._in.get(str(pod["metadata"]["namespace"]), ())
            if budget_selects(budget, pod)
        ]
        if len(selecting) > 1:
            return [index for index, _ in selecting]
        name = pod["metadata"]["name"]
        return [
            index
            for index, budget in selecting
            # An eviction that was allowed before is counted already.
            if name not in ((budget.get("status") or {}).get("disruptedPods") or {})
            and not may_evict_unready(budget, pod)
        ]


def cost_of(units: Iterable[Unit], budgets: Budgets) -> Cost:
    """What it costs if these units go."""
    going = list(units)
    if not going:
        return NOBODY
    highest, since = max(map(key_of, going))
    return Cost(
        budgets.violations(map(budgets.charge, going)),
        highest,
        sum(map(weight_of, going)),
        sum(len(unit.pods) for unit in going),
        since,
    )


def key_of(unit: Unit) -> tuple[int, float]:
    """``highest`` and ``since`` of the unit; those of a set are the largest of its units'."""
    return unit.priority, NOT_STARTED if unit.started is None else -_seconds(unit.started)


def weight_of(unit: Unit) -> int:
    """``total`` of the unit; that of a set is their sum."""
    return sum(priority + _OFFSET for priority in unit.priorities)


def importance(unit: Unit) -> tuple[int, bool, int, float]:
    """Larger for units that are more important: they are the last to go.

    Priority counts first, then groups before pods, then more pods, then the earlier start.
    """
    priority, since = key_of(unit)
    return priority, unit.is_group, len(unit.pods), since


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
