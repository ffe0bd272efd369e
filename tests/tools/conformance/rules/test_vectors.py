"""Admission policies do what they do in Kubernetes, in all recorded cases."""

from __future__ import annotations

from tools.conformance.oracle import read_vectors
from tools.conformance.rules.policies_area import AREA


def test_the_same_is_refused_and_costs_the_same_as_in_kubernetes() -> None:
    different = [
        difference
        for case, answer in read_vectors(AREA.name)
        if (difference := AREA.difference(case, answer))
    ]

    assert different == []


def test_the_vectors_hold_every_written_case() -> None:
    recorded = [case for case, _ in read_vectors(AREA.name)]

    assert all(case in recorded for case in AREA.written())
    assert len(recorded) >= 300
