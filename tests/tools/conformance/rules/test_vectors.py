"""Rules of custom resources and admission policies do what they do in Kubernetes, in all recorded cases."""

from __future__ import annotations

import pytest

from tools.conformance.area import Area
from tools.conformance.oracle import read_vectors
from tools.conformance.rules.area import AREA
from tools.conformance.rules.policies_area import AREA as POLICIES

areas = pytest.mark.parametrize("area", [AREA, POLICIES], ids=["rules", "policies"])


@areas
def test_the_same_is_refused_and_costs_the_same_as_in_kubernetes(area: Area) -> None:
    different = [
        difference
        for case, answer in read_vectors(area.name)
        if (difference := area.difference(case, answer))
    ]

    assert different == []


@areas
def test_the_vectors_hold_every_written_case(area: Area) -> None:
    recorded = [case for case, _ in read_vectors(area.name)]

    assert all(case in recorded for case in area.written())
    assert len(recorded) >= 300
