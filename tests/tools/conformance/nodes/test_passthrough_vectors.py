"""Nodes with virtual machines are allocated from as Kubernetes did when the golden vectors were recorded."""

from __future__ import annotations

from tools.conformance.nodes.passthrough_area import AREA, handed_out_twice
from tools.conformance.oracle import read_vectors


def test_every_recorded_question_is_answered_as_kubernetes_answered_it_and_hands_nothing_out_twice() -> None:
    vectors = list(read_vectors(AREA.name))
    differences = [
        f"{case.get('name')}: {difference}"
        for case, answer in vectors
        if (difference := AREA.difference(case, answer)) is not None
    ]
    assert differences == []
    allocations = [(case, answer) for case, answer in vectors if case["op"] == "allocate"]
    assert [found for case, answer in allocations if (found := handed_out_twice(case, answer))] == []
    assert len(vectors) >= 600
    assert sum("results" in answer for _, answer in allocations) >= 300
