"""Commands say how GPUs are shared, what a share gets, who has one, and for how many there is room."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from driver.policy.offers import node_offers
from gpuctl.__main__ import commands
from gpuctl.fleet.cluster import states_of
from gpuctl.fleet.nodes import TierCount
from gpuctl.plan.node_gpus import GpuFacts, published_gpus
from gpuctl.plan.planned import plan_node
from gpuctl.plan.share_words import limits_lines, share_words
from tests.driver.mig_machines import rules
from tools.conformance.nodes.mig_nodes import inventory

FIRST = "gpu-0000-17-00-0"
SLICED = "shared: {strategy: TimeSlicing, shares: 4}"


def config(folder: Path, rule: str) -> Path:
    (folder / "node.yaml").write_text(f"{{version: v1, rules: [{{{rule}}}]}}")
    return folder / "node.yaml"


def slices(folder: Path, rule: str) -> tuple[dict[str, Any], ...]:
    """The slices of four A30 under a rule."""
    return plan_node("a30-quad", "node-a", config(folder, rule)).slices


def claim(pod: str, device: str, number: int = 0, **consumed: str) -> dict[str, Any]:
    result: dict[str, Any] = {
        "request": "r",
        "driver": "gpu.nvidia.com",
        "pool": "node-a/gpu.nvidia.com",
        "device": device,
    }
    if consumed:
        result |= {"shareID": f"share-{number}", "consumedCapacity": consumed}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"name": pod}]}
    return {"metadata": {"name": pod, "namespace": "ns"}, "status": status}


def shares(count: int, device: str = f"{FIRST}-ts-4") -> list[dict[str, Any]]:
    return [claim(f"pod-{number}", device, number, shares="1", memory="0") for number in range(count)]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (SLICED, "time-slicing: 4 shares of 5.5 GiB"),
        (
            "shared: {strategy: TimeSlicing, memory: {step: 2Gi}}",
            "time-slicing: memory in steps of 2Gi, held",
        ),
        (
            "shared: {strategy: TimeSlicing, memory: {step: 64Mi}}",
            "time-slicing: memory from 512Mi in steps of 64Mi, held",
        ),
        (f"memoryLimits: false, {SLICED}", "time-slicing: 4 shares"),
        (
            "memoryLimits: false, shared: {strategy: TimeSlicing, memory: {step: 2Gi}}",
            "time-slicing: memory in steps of 2Gi",
        ),
        ("shared: {strategy: MPS, memory: {step: 2Gi}}", "MPS: memory in steps of 2Gi"),
    ],
)
def test_time_slicing_says_whether_its_memory_is_held(rule: str, words: str) -> None:
    [device] = node_offers(inventory("l4-quad", "delivered"), rules(rule)).devices[:1]
    assert share_words(device) == words


@pytest.mark.parametrize(
    ("machine", "rule", "line"),
    [
        (
            "l4-quad",
            SLICED,
            "memory limits: the NVIDIA driver enforces them on GPU 0, 1, 2, 3",
        ),
        (
            "l4-quad",
            f"memoryLimits: false, {SLICED}",
            (
                "no memory limits by the NVIDIA driver on GPU 0, 1, 2, 3: the node configuration says "
                "memoryLimits: false"
            ),
        ),
        (
            "a30-quad",
            SLICED,
            (
                "no memory limits by the NVIDIA driver on GPU 0, 1, 2, 3: its NVIDIA driver 570.133.20 is "
                "older than R615, the first with memory limits"
            ),
        ),
    ],
)
def test_a_plan_says_whose_memory_is_held(tmp_path: Path, machine: str, rule: str, line: str) -> None:
    assert list(limits_lines(plan_node(machine, "node-a", config(tmp_path, rule)).slices)) == [line]
    answer = CliRunner().invoke(
        commands, ["plan", "--machine", machine, "--config", str(config(tmp_path, rule))]
    )
    assert line in " ".join(answer.output.split())


def test_a_plan_without_shares_says_nothing_of_a_driver_that_is_too_old(tmp_path: Path) -> None:
    assert list(limits_lines(plan_node("a30-quad", "node-a", None).slices)) == []
    assert list(limits_lines(plan_node("a30-quad", "node-a", config(tmp_path, "mig: dynamic")).slices)) == []


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (SLICED, "time-slicing: 4 shares"),
        ("shared: {strategy: MPS, shares: 4}", "MPS: 4 shares of 19.8 GiB"),
        ("shared: {strategy: MPS, memory: {step: 5Gi}}", "MPS: memory in steps of 5Gi"),
        (
            "shared: {strategy: MPS, shares: 4, memory: {step: 1Gi}}",
            "MPS: 4 shares with memory in steps of 1Gi (19Gi unless asked)",
        ),
        (
            "shared: {strategy: MPS, memory: {step: 4Gi}, fractional: true}",
            "MPS: whole or memory in steps of 4Gi",
        ),
        (
            "shared: {strategy: TimeSlicing, shares: 10, fractional: true}",
            "time-slicing: whole or 10 shares",
        ),
        ("offer: whole", None),
    ],
)
def test_how_a_gpu_is_shared_is_said_in_words(rule: str, words: str | None) -> None:
    device = node_offers(inventory("hgx-h100", "delivered"), rules(rule)).devices[0]

    assert share_words(device) == words


def facts(folder: Path, rule: str, *claims: dict[str, Any]) -> GpuFacts:
    return published_gpus(slices(folder, rule), claims)[0]


def test_a_gpu_is_one_row_with_all_of_its_forms(tmp_path: Path) -> None:
    both = "[{strategy: TimeSlicing, shares: 4}, {strategy: MPS, shares: 2}]"

    gpu = facts(tmp_path, f"offer: whole, mig: off, shared: {both}")

    assert gpu.offered_as == "whole | MPS: 2 shares of 11.8 GiB | time-slicing: 4 shares"


def test_a_gpu_that_is_only_shared_is_known_by_its_shared_device(tmp_path: Path) -> None:
    gpu = facts(tmp_path, SLICED)

    assert (gpu.device, gpu.memory_bytes, gpu.offered_as) == (FIRST, 23.5 * 2**30, "time-slicing: 4 shares")


def test_shared_partitions_are_counted_by_profile_and_strategy(tmp_path: Path) -> None:
    planned = plan_node(
        "hgx-h100", "node-a", config(tmp_path, "mig: {layout: all-3g}, shared: {strategy: MPS, shares: 2}")
    )

    gpu = published_gpus(planned.slices, ())[0]

    assert gpu.offered_as == "2 x 3g.40gb by MPS: 2 shares of 19.8 GiB"


def test_holders_of_shares_are_named_with_what_they_took(tmp_path: Path) -> None:
    gpu = facts(tmp_path, SLICED, *shares(2))
    assert gpu.held_by == ("pod-0 (shares 1)", "pod-1 (shares 1)")

    by_memory = claim("big", f"{FIRST}-mps-8-mem", shares="1", memory="5Gi")
    gpu = facts(tmp_path, "shared: {strategy: MPS, shares: 8, memory: {step: 1Gi}}", by_memory)
    assert gpu.held_by == ("big (shares 1, memory 5Gi)",)


def tiers(folder: Path, rule: str, *claims: dict[str, Any]) -> Mapping[str, TierCount]:
    (node,) = states_of(slices(folder, rule), claims)
    return node.tiers


def test_status_tells_for_how_many_claims_there_is_room(tmp_path: Path) -> None:
    found = tiers(tmp_path, SLICED, *shares(3))

    assert found == {
        "shared, time-slicing": TierCount(devices=4, allocated=1, free=4, at_once=4, claims=3, claims_left=13)
    }


def test_a_shared_gpu_without_room_is_not_free(tmp_path: Path) -> None:
    count = tiers(tmp_path, SLICED, *shares(4))["shared, time-slicing"]

    assert (count.allocated, count.free, count.claims_left, count.excluded) == (1, 3, 12, 0)


def test_the_scarcest_measure_decides_how_many_claims_have_room(tmp_path: Path) -> None:
    rule = "shared: {strategy: MPS, shares: 8, memory: {step: 1Gi}}"
    big = claim("big", f"{FIRST}-mps-8-mem", shares="1", memory="16Gi")

    count = tiers(tmp_path, rule, big)["shared, mps"]

    assert count.claims_left == 3 * 8 + 3


def test_a_gpu_whose_shares_are_used_is_excluded_as_a_whole_and_its_shares_are_not(tmp_path: Path) -> None:
    found = tiers(tmp_path, f"offer: whole, mig: off, {SLICED}", *shares(1))

    assert (found["whole"].free, found["whole"].excluded) == (3, 1)
    count = found["shared, time-slicing"]
    assert (count.free, count.at_once, count.excluded, count.claims_left) == (4, 4, 0, 15)


def test_a_whole_gpu_in_use_excludes_its_shares(tmp_path: Path) -> None:
    count = tiers(tmp_path, f"offer: whole, mig: off, {SLICED}", claim("train", FIRST))[
        "shared, time-slicing"
    ]

    assert (count.free, count.excluded, count.claims_left) == (3, 1, 12)


def run(*arguments: str) -> str:
    return CliRunner().invoke(commands, arguments, catch_exceptions=False).output


def test_a_plan_draws_how_gpus_are_shared_and_what_is_kept_back(tmp_path: Path) -> None:
    rule = "offer: whole, mig: off, shared: {strategy: MPS, memory: {step: 20Gi}}"

    output = run("plan", "--machine", "a30-quad", "--config", str(config(tmp_path, rule)))

    reason = "MPS: 24064Mi of its memory can be shared, less than two steps of 20Gi"
    assert f"not offered: 0000:17:00.0 shared: {reason}" in " ".join(output.split())
    output = run("plan", "--machine", "a30-quad", "--config", str(config(tmp_path, SLICED)))
    assert "time-slicing: 4 shares" in output


def test_a_plan_of_partitions_says_how_they_are_shared(tmp_path: Path) -> None:
    both = "[{strategy: TimeSlicing, shares: 4}, {strategy: MPS, shares: 2}]"
    rule = f"mig: {{layout: [3g, 3g]}}, shared: {both}"

    output = run("mig", "plan", "--machine", "hgx-h100", "--config", str(config(tmp_path, rule)))

    assert "offered shared, 3g.40gb by time-slicing: 4 shares" in output
    assert "offered shared, 3g.40gb by MPS: 2 shares of 19.8 GiB" in output
    assert "offered as a whole" not in output
