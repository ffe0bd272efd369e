"""Allocation is decided as Kubernetes decided it when the golden vectors were recorded."""

import pytest

from kubernetes_rules.allocator import search
from tools.conformance.allocation.area import AREA, gave_up, our_answer
from tools.conformance.oracle import read_vectors


@pytest.mark.parametrize("easy_tries", [search.EASY_TRIES, -1], ids=["as it is", "looking ahead at once"])
def test_every_recorded_allocation_is_answered_as_kubernetes_answered_it(
    easy_tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "EASY_TRIES", easy_tries)
    vectors = list(read_vectors(AREA.name))
    differences = [(case["name"], AREA.difference(case, answer)) for case, answer in vectors]
    assert [one for one in differences if one[1] is not None] == []
    assert not any(gave_up(our_answer(case)) for case, _ in vectors)
    assert len(vectors) >= 800
