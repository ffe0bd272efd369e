"""Definitions of custom resources and their objects are judged as by Kubernetes, for all recorded cases."""

from __future__ import annotations

import json

import pytest

from tools.conformance.area import Area
from tools.conformance.oracle import read_vectors
from tools.conformance.schemas import definitions_area, objects_area


@pytest.mark.parametrize("area", [definitions_area.AREA, objects_area.AREA], ids=lambda area: area.name)
def test_all_recorded_cases_have_the_errors_and_the_results_that_kubernetes_gave(area: Area) -> None:
    vectors = list(read_vectors(area.name))
    different = [difference for case, answer in vectors if (difference := area.difference(case, answer))]

    assert different == []
    recorded = {json.dumps(case, sort_keys=True) for case, _ in vectors}
    assert recorded >= {json.dumps(case, sort_keys=True) for case in area.written()}
    assert sum(bool(answer.get("errors")) for _, answer in vectors) >= 100
    assert sum(not answer.get("errors") for _, answer in vectors) >= 50
