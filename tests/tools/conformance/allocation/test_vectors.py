"""Allocation is decided as Kubernetes decided it when the golden vectors were recorded."""

from __future__ import annotations

from tools.conformance.allocation.area import AREA
from tools.conformance.oracle import read_vectors


def test_every_recorded_allocation_is_answered_as_kubernetes_answered_it() -> None:
    vectors = list(read_vectors(AREA.name))
    differences = [
        f"{case['name']}: {difference}"
        for case, answer in vectors
        if (difference := AREA.difference(case, answer)) is not None
    ]
    assert differences == []
    assert len(vectors) >= 500
