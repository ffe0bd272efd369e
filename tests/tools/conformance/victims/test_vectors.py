"""The victims are those that were the cheapest by Kubernetes' allocator when the vectors were recorded."""

from collections.abc import Iterable, Iterator

from tools.conformance.allocation.area import our_answer
from tools.conformance.area import Answer, Case
from tools.conformance.oracle import read_vectors
from tools.conformance.victims.area import AREA, Confirmed
from tools.conformance.victims.cases import CASES


class OurAllocator:
    """Answers as our own allocator does, or that nothing fits beside any held device."""

    def __init__(self, *, only_empty: bool = False) -> None:
        self._only_empty = only_empty

    def ask(self, cases: Iterable[Case]) -> Iterator[tuple[Case, Answer]]:
        """Each case with its answer."""
        for case in cases:
            yield case, {"none": True} if self._only_empty and case["allocated"] else our_answer(case)


def _confirmed(case: Case, allocator: OurAllocator) -> Answer:
    ((_, answer),) = Confirmed(allocator).ask([case])
    return answer


def test_nobody_cheaper_is_enough_in_any_recorded_case() -> None:
    vectors = list(read_vectors(AREA.name))
    differences = [(case["name"], AREA.difference(case, answer)) for case, answer in vectors]
    assert [one for one in differences if one[1] is not None] == []
    assert len(vectors) >= 250
    assert sum(bool(answer.get("victims")) for _, answer in vectors) >= 100


def test_an_allocator_that_needs_other_victims_is_noticed() -> None:
    answer = _confirmed(CASES[0], OurAllocator(only_empty=True))

    assert answer == {"victims": ["ns/a", "ns/b", "ns/c"]}
    assert "ours" in str(AREA.difference(CASES[0], answer))
