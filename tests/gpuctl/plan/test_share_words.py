"""Commands say how devices are shared, and whether the NVIDIA driver holds containers to their memory."""

from __future__ import annotations

import pytest

from driver.policy.offers import node_offers
from gpuctl.plan.share_words import share_words
from tests.driver.mig_machines import rules
from tools.conformance.nodes.mig_nodes import inventory


@pytest.mark.parametrize(
    ("machine", "rule", "words"),
    [
        ("hgx-h100", "offer: whole", None),
        ("hgx-h100", "shared: {strategy: MPS, memory: {step: 5Gi}}", "MPS: memory in steps of 5Gi"),
        (
            "hgx-h100",
            "shared: {strategy: MPS, memory: {step: 4Gi}, fractional: true}",
            "MPS: whole or memory in steps of 4Gi",
        ),
        ("l4-quad", "shared: {strategy: TimeSlicing, shares: 4}", "time-slicing: 4 shares of 5.5 GiB"),
        (
            "l4-quad",
            "shared: {strategy: TimeSlicing, memory: {step: 64Mi}}",
            "time-slicing: memory from 512Mi in steps of 64Mi, held",
        ),
        (
            "l4-quad",
            "memoryLimits: false, shared: {strategy: TimeSlicing, memory: {step: 2Gi}}",
            "time-slicing: memory in steps of 2Gi",
        ),
        ("l4-quad", "shared: {strategy: MPS, memory: {step: 2Gi}}", "MPS: memory in steps of 2Gi"),
    ],
)
def test_how_a_gpu_is_shared_is_said_in_words(machine: str, rule: str, words: str | None) -> None:
    [device] = node_offers(inventory(machine, "delivered"), rules(rule)).devices[:1]

    assert share_words(device) == words
