"""Kubernetes' own validation and allocator take what nodes with MIG publish, and decide as we do."""

import itertools
from random import Random

import pytest

from tools.conformance.nodes.mig_area import AREA, written_cases
from tools.conformance.oracle import Oracle


def test_every_slice_of_every_machine_and_sample_is_taken_and_allocated_from(oracle: Oracle) -> None:
    answered = list(oracle.ask(written_cases(gpus=None)))

    wrong = [
        f"{case.get('name', case['op'])}: {answer.get('errors') or answer}"
        for case, answer in answered
        if answer.get("errors") or (case["op"] == "allocate" and "results" not in answer)
    ]
    assert wrong == []
    assert len(answered) >= 400


def test_kubernetes_decides_about_every_machine_and_sample_as_we_do(oracle: Oracle) -> None:
    answered = oracle.ask(written_cases(gpus=2))

    assert [difference for case, answer in answered if (difference := AREA.difference(case, answer))] == []


def test_kubernetes_decides_about_random_nodes_with_mig_as_we_do(oracle: Oracle, kubernetes: str) -> None:
    if kubernetes == "1.36":
        pytest.skip("1.36 lets a distinctAttribute of several requests pass, which our allocator never does")
    chance = Random("mig on a real cluster")  # noqa: S311 - no secret
    asked = list(itertools.islice(iter(lambda: AREA.random(chance), None), 300))

    answered = oracle.ask(asked)

    assert [difference for case, answer in answered if (difference := AREA.difference(case, answer))] == []
