"""Selectors answer as Kubernetes did when the golden vectors were recorded, and cost the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.conformance.cel.area import AREA, difference
from tools.conformance.oracle import read_vectors

if TYPE_CHECKING:
    pass


def test_selectors_answer_as_kubernetes_does() -> None:
    vectors = list(read_vectors("cel"))
    different = [
        f"{case['expression']}: {found}"
        for case, answer in vectors
        if (found := difference(case, answer)) is not None
    ]

    assert len(vectors) >= 700
    assert different == []


def test_every_written_case_has_a_vector() -> None:
    recorded = {(case["expression"], case["device"]["driver"]) for case, _ in read_vectors("cel")}

    missing = [
        case for case in AREA.written() if (case["expression"], case["device"]["driver"]) not in recorded
    ]
    assert missing == []


def test_another_answer_is_a_difference() -> None:
    case, answer = next((case, answer) for case, answer in read_vectors("cel") if "matches" in answer)

    assert difference(case, {**answer, "matches": not answer["matches"]}) is not None
    assert difference(case, {**answer, "cost": answer["cost"] + 1}) is not None
    assert difference(case, {"error": "no such key"}) is not None
    assert difference(case, {"compileError": "wrong"}) is not None
