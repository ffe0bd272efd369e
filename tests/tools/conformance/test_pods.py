"""What is wrong with a pod and how it is stored is the same here as in Kubernetes, for all recorded cases."""

from __future__ import annotations

from tools.conformance.oracle import read_vectors
from tools.conformance.pods import AREA


def test_pods_have_the_same_defaults_and_the_same_errors_as_in_kubernetes() -> None:
    different = [
        difference for case, answer in read_vectors("pods") if (difference := AREA.difference(case, answer))
    ]

    assert different == []


def test_the_vectors_hold_every_written_case() -> None:
    recorded = [case for case, _ in read_vectors("pods")]

    assert all(case in recorded for case in AREA.written())
    assert len(recorded) >= 200
