"""The embedded API server answers HTTP requests as kube-apiserver did when the vectors were recorded."""

from __future__ import annotations

from pathlib import Path

from envtest.embedded.api import unforeseen
from tools.conformance.api.area import differing, written_cases
from tools.conformance.oracle import read_vectors

_KNOWN = Path(__file__).with_name("still_different.txt")
"""The cases that are still answered otherwise, by name: none may come to them."""


def test_requests_are_answered_as_kubernetes_does() -> None:
    vectors = list(read_vectors("api"))
    known = set(_KNOWN.read_text().splitlines())

    different = [(case["name"], found) for case, found in differing(vectors) if case["name"] not in known]

    # Those of the cases that are still different.
    unforeseen.take()
    assert len(vectors) >= 600
    assert different == []


def test_every_written_case_has_a_vector() -> None:
    recorded = [case for case, _ in read_vectors("api")]

    assert [case for case in written_cases() if case not in recorded] == []
