"""Compares who has to go for claims: by Kubernetes' own allocator nobody cheaper is enough.

The oracle answers only whether claims fit. On a small node it is asked for every set of victims, the cheapest
first. On a larger one it is asked whether the chosen victims are enough, and whether each of them is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, combinations
from pathlib import Path

from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator
from kubernetes_rules.preemption.units import Budgets, Unit, cost_of, pod_name, units_of
from kubernetes_rules.preemption.victims import Victims, cheapest_victims
from tools.conformance.allocation.objects import NODE
from tools.conformance.area import Answer, Area, Asked, Case, version_of
from tools.conformance.oracle import Oracle
from tools.conformance.victims.cases import CASES
from tools.conformance.victims.random_cases import random_case

_MOST_UNITS = 8
"""Up to so many units, every set of them is tried."""

_AT_ONCE = 16
"""Sets of which the oracle is asked at a time."""


def units_that_may_go(case: Case) -> list[Unit]:
    """The units of lower priority that hold devices."""
    found = units_of(case["pods"], case["claims"]).on_node.get(NODE, ())
    return [unit for unit in found if unit.claims and unit.priority < case["priority"]]


def our_victims(case: Case) -> Victims | None:
    """Our answer. Raises AllocationFailed."""
    allocator = Allocator(case["slices"], case["classes"], case["claims"], version_of(case))
    budgets = Budgets(case["budgets"])
    return cheapest_victims(allocator, case["node"], case["wanted"], units_that_may_go(case), budgets)


class Confirmed:
    """Answers cases with the help of an allocator: the names of the victims, or that none are enough."""

    def __init__(self, oracle: Asked) -> None:
        self._oracle = oracle

    def ask(self, cases: Iterable[Case]) -> Iterator[tuple[Case, Answer]]:
        """Each case with its answer, in order."""
        for case in cases:
            yield case, self._answer(case)

    def _answer(self, case: Case) -> Answer:
        units = units_that_may_go(case)
        now, at_most = self._fits(case, [(), tuple(units)])
        if now is None or (at_most is None and not now):
            return {"error": True}
        if not now and not at_most:
            return {"none": True}
        if len(units) > _MOST_UNITS:
            return self._judged(case, our_victims(case))
        budgets = Budgets(case["budgets"])
        sets = chain.from_iterable(combinations(units, number) for number in range(len(units) + 1))
        ordered = sorted(sets, key=lambda one: cost_of(one, budgets))
        for start in range(0, len(ordered), _AT_ONCE):
            some = ordered[start : start + _AT_ONCE]
            for one, fits in zip(some, self._fits(case, some), strict=True):
                if fits:
                    return {"victims": _names(one)}
        return {"none": True}

    def _judged(self, case: Case, found: Victims | None) -> Answer:
        """Our own answer if the oracle confirms it."""
        if found is None:
            return {"wrong": "some victims are enough"}
        without = [tuple(one for one in found.units if one is not unit) for unit in found.units]
        enough, *less = self._fits(case, [found.units, *without])
        if not enough or any(less):
            return {"wrong": f"{_names(found.units)}: enough is {enough}, with one less {less}"}
        return {"victims": _names(found.units)}

    def _fits(self, case: Case, sets: Sequence[Sequence[Unit]]) -> list[bool | None]:
        """Whether the claims fit without the claims of each set; None if the oracle reports an error."""
        asked = []
        for one in sets:
            gone = {id(claim) for unit in one for claim in unit.claims}
            allocated = [claim for claim in case["claims"] if id(claim) not in gone]
            inputs = {name: case[name] for name in ("node", "slices", "classes")}
            question = {
                "op": "allocate",
                "name": case["name"],
                "allocated": allocated,
                "claims": case["wanted"],
            }
            asked.append({**question, **inputs})
        return [None if "error" in answer else "results" in answer for _, answer in self._oracle.ask(asked)]


def _names(units: Iterable[Unit]) -> list[str]:
    return sorted(pod_name(pod) for unit in units for pod in unit.pods)


def _difference(case: Case, answer: Answer) -> str | None:
    if "wrong" in answer:
        return f"Kubernetes does not confirm it: {answer['wrong']}"
    try:
        found = our_victims(case)
    except AllocationFailed as error:
        return None if "error" in answer else f"Kubernetes {answer}\n  ours       {error}"
    if found is None:
        return None if "none" in answer else f"Kubernetes {answer}\n  ours       none"
    names = set(answer.get("victims", ()))
    theirs = [unit for unit in units_that_may_go(case) if names.intersection(_names([unit]))]
    if "victims" in answer and cost_of(theirs, Budgets(case["budgets"])) == found.cost:
        return None
    return f"Kubernetes {answer}\n  ours       {_names(found.units)} at {found.cost}"


@contextmanager
def _start(oracle: Path) -> Iterator[Asked]:
    with Oracle(oracle) as asked:
        yield Confirmed(asked)


AREA = Area("victims", lambda: CASES, random_case, _difference, _start, recorded=250)
