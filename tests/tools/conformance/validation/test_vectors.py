"""What is wrong with an object is the same here as in Kubernetes, for all recorded cases."""

from __future__ import annotations

from tools.conformance.oracle import read_vectors
from tools.conformance.validation.area import AREA


def test_the_same_fields_have_the_same_errors_as_in_kubernetes() -> None:
    different = [
        difference
        for case, answer in read_vectors("validation")
        if (difference := AREA.difference(case, answer))
    ]

    assert different == []


def test_the_vectors_hold_every_written_case() -> None:
    recorded = [case for case, _ in read_vectors("validation")]

    assert all(case in recorded for case in AREA.written())
    assert len(recorded) >= 500
