"""Nodes with MIG are allocated from as Kubernetes did when the golden vectors were recorded."""

from __future__ import annotations

from tools.conformance.nodes.mig_area import AREA
from tools.conformance.oracle import read_vectors


def test_every_recorded_question_about_mig_is_answered_as_kubernetes_answered_it() -> None:
    vectors = list(read_vectors(AREA.name))
    differences = [
        f"{case.get('name')}: {difference}"
        for case, answer in vectors
        if (difference := AREA.difference(case, answer)) is not None
    ]
    assert differences == []
    assert len(vectors) >= 500
    assert sum("results" in answer for _, answer in vectors) >= 200
