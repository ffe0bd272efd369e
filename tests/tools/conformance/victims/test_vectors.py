"""The victims are those that were the cheapest by Kubernetes' allocator when the vectors were recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

from tools.conformance.allocation.area import our_answer
from tools.conformance.area import Answer, Case
from tools.conformance.oracle import read_vectors
from tools.conformance.victims.area import AREA, Confirmed, units_that_may_go
from tools.conformance.victims.cases import CASES


class OurAllocator:
    """Answers as our own allocator does, or that nothing fits beside any held device."""

    def __init__(self, *, only_empty: bool = False) -> None:
        self._only_empty = only_empty

    def ask(self, cases: Iterable[Case]) -> Iterator[tuple[Case, Answer]]:
        """Each case with its answer."""
        for case in cases:
            yield case, {"none": True} if self._only_empty and case["allocated"] else our_answer(case)


def _large() -> Case:
    """A node with more units than can be tried in all sets, where somebody has to go."""
    cases = (AREA.random(Random(seed)) for seed in range(1000))  # noqa: S311 - no secret
    return next(
        case
        for case in cases
        if len(units_that_may_go(case)) > 8 and _confirmed(case, OurAllocator()).get("victims")
    )


def _confirmed(case: Case, allocator: OurAllocator) -> Answer:
    ((_, answer),) = Confirmed(allocator).ask([case])
    return answer


def test_nobody_cheaper_is_enough_in_any_recorded_case() -> None:
    vectors = list(read_vectors(AREA.name))
    differences = [
        f"{case['name']}: {difference}"
        for case, answer in vectors
        if (difference := AREA.difference(case, answer)) is not None
    ]
    assert differences == []
    assert len(vectors) >= 250
    assert sum(bool(answer.get("victims")) for _, answer in vectors) >= 100


def test_sets_are_tried_until_the_cheapest_that_is_enough_is_found() -> None:
    for case in CASES:
        assert AREA.difference(case, _confirmed(case, OurAllocator())) is None


def test_an_allocator_that_needs_other_victims_is_noticed() -> None:
    answer = _confirmed(CASES[0], OurAllocator(only_empty=True))

    assert answer == {"victims": ["ns/a", "ns/b", "ns/c"]}
    assert "ours" in str(AREA.difference(CASES[0], answer))


def test_on_a_large_node_the_victims_have_to_be_enough_and_none_too_many() -> None:
    large = _large()
    wrong = _confirmed(large, OurAllocator(only_empty=True))

    assert AREA.difference(large, _confirmed(large, OurAllocator())) is None
    assert "does not confirm" in str(AREA.difference(large, wrong))
