"""Kubernetes takes what hosts of vGPUs publish, decides as we do, and mixes nothing that has to be apart."""

import itertools
from random import Random

from tools.conformance.nodes.vgpu_area import AREA, mixed
from tools.conformance.oracle import Oracle


def test_every_layout_of_a_host_is_taken_and_decided_as_we_do(oracle: Oracle) -> None:
    answered = list(oracle.ask(AREA.written()))

    assert [difference for case, answer in answered if (difference := AREA.difference(case, answer))] == []
    assert [answer["errors"] for _, answer in answered if answer.get("errors")] == []
    assert len(answered) >= 150
    assert sum("results" in answer for _, answer in answered) >= 30


def test_kubernetes_mixes_no_profiles_on_a_gpu_of_random_hosts(oracle: Oracle) -> None:
    chance = Random("hosts of vGPUs on a real cluster")  # noqa: S311 - no secret
    answered = list(oracle.ask(itertools.islice(iter(lambda: AREA.random(chance), None), 200)))

    assert [found for case, answer in answered if (found := mixed(case, answer))] == []
    assert [wrong for case, answer in answered if (wrong := AREA.difference(case, answer))] == []
    assert sum("results" in answer and bool(case["allocated"]) for case, answer in answered) >= 30
