"""Kubernetes takes what nodes with virtual machines publish, decides as we do, and gives out no GPU twice."""

import itertools
from random import Random

from tools.conformance.nodes.passthrough_area import AREA, handed_out_twice, written_cases
from tools.conformance.oracle import Oracle


def test_every_combination_is_taken_allocated_and_excludes_its_other_forms(oracle: Oracle) -> None:
    answered = list(oracle.ask(written_cases(gpus=4)))

    wrong = [
        f"{case.get('name', case['op'])}: {answer.get('errors') or answer}"
        for case, answer in answered
        if answer.get("errors")
        or (case["op"] == "allocate" and ("results" in answer) == (" beside " in case["name"]))
    ]
    assert wrong == []
    assert len(answered) >= 600


def test_kubernetes_decides_about_every_combination_as_we_do(oracle: Oracle) -> None:
    answered = oracle.ask(written_cases(gpus=2))

    assert [difference for case, answer in answered if (difference := AREA.difference(case, answer))] == []


def test_kubernetes_hands_no_gpu_out_twice_on_random_nodes(oracle: Oracle, kubernetes: str) -> None:
    chance = Random("passthrough on a real cluster")  # noqa: S311 - no secret
    asked = list(itertools.islice(iter(lambda: AREA.random(chance), None), 300))

    answered = list(oracle.ask(asked))

    assert [found for case, answer in answered if (found := handed_out_twice(case, answer))] == []
    assert sum("results" in answer and bool(case["allocated"]) for case, answer in answered) >= 50
    if kubernetes != "1.36":  # which lets a distinctAttribute of several requests pass
        assert [wrong for case, answer in answered if (wrong := AREA.difference(case, answer))] == []
