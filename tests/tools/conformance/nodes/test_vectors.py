"""Nodes are allocated from as Kubernetes did when the golden vectors were recorded, and nothing twice."""

import pytest

from tools.conformance.area import Area
from tools.conformance.nodes import mig_area, passthrough_area, shares_area, vgpu_area
from tools.conformance.nodes.passthrough_area import handed_out_twice
from tools.conformance.oracle import read_vectors


@pytest.mark.parametrize(
    ("area", "least", "least_given"),
    [
        (mig_area.AREA, 500, 200),
        (passthrough_area.AREA, 600, 300),
        (shares_area.AREA, 500, 200),
        (vgpu_area.AREA, 300, 100),
    ],
    ids=lambda one: one.name if isinstance(one, Area) else "",
)
def test_every_recorded_question_is_answered_as_kubernetes_answered_it_and_hands_nothing_out_twice(
    area: Area, least: int, least_given: int
) -> None:
    vectors = list(read_vectors(area.name))

    differences = [(case.get("name"), area.difference(case, answer)) for case, answer in vectors]
    assert [one for one in differences if one[1] is not None] == []
    allocations = [(case, answer) for case, answer in vectors if case["op"] == "allocate"]
    if area is passthrough_area.AREA:
        assert [found for case, answer in allocations if (found := handed_out_twice(case, answer))] == []
    assert len(vectors) >= least
    assert sum(bool(answer.get("results")) for _, answer in allocations) >= least_given
