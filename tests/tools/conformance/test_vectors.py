"""What was recorded of Kubernetes is answered here in the same way, and every written case was recorded."""

import json

import pytest

from tools.conformance import pods
from tools.conformance.area import Area
from tools.conformance.cel import area as cel
from tools.conformance.oracle import read_vectors
from tools.conformance.validation import area as validation


@pytest.mark.parametrize(
    ("area", "least"),
    [(cel.AREA, 700), (pods.AREA, 200), (validation.AREA, 500)],
    ids=["cel", "pods", "validation"],
)
def test_every_recorded_question_is_answered_as_kubernetes_answered_it(area: Area, least: int) -> None:
    vectors = list(read_vectors(area.name))
    recorded = {json.dumps(case, sort_keys=True) for case, _ in vectors}
    assert [found for case, answer in vectors if (found := area.difference(case, answer))] == []
    assert [one for one in area.written() if json.dumps(one, sort_keys=True) not in recorded] == []
    assert len(recorded) >= least


def test_another_answer_about_a_selector_is_a_difference() -> None:
    case, answer = next((case, answer) for case, answer in read_vectors("cel") if "matches" in answer)
    for other in (
        {**answer, "matches": not answer["matches"]},
        {**answer, "cost": answer["cost"] + 1},
        {"error": "no such key"},
        {"compileError": "wrong"},
    ):
        assert cel.AREA.difference(case, other) is not None
