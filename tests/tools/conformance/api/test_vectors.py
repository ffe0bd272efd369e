"""The embedded API server answers HTTP requests as kube-apiserver did when the vectors were recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.conformance.api.area import differing, written_cases
from tools.conformance.api.left_out import LEFT_OUT
from tools.conformance.area import Answer, Case
from tools.conformance.oracle import read_vectors

_KNOWN = Path(__file__).with_name("still_different.txt")
"""The cases that are still answered otherwise, by name: none may come to them."""


Vectors = list[tuple[Case, Answer]]


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    return list(read_vectors("api"))


def test_requests_are_answered_as_kubernetes_does(vectors: Vectors) -> None:
    known = set(_KNOWN.read_text().splitlines())

    different = [(case["name"], found) for case, found in differing(vectors) if case["name"] not in known]

    assert len(vectors) >= 600
    assert different == []


def test_every_written_case_has_a_vector(vectors: Vectors) -> None:
    recorded = {case["name"]: case for case, _ in vectors}

    assert [case for case in written_cases() if recorded.get(case["name"]) != case] == []
    assert set(_KNOWN.read_text().splitlines()) <= recorded.keys()


def test_every_difference_on_purpose_has_a_case(vectors: Vectors) -> None:
    names = [case for case, _ in vectors]

    without = [one.what for one in LEFT_OUT if not any(one.covers(case) for case in names)]

    assert without == []
