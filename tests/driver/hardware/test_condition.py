"""Each look asks how well a GPU is, makes problems of it, and comes to no harm where a call of it fails."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from driver.hardware.condition import problems_of
from driver.hardware.gpu import NOT_ASKED, Condition, without_answers
from driver.health.judge import verdicts_of_problems
from tests.driver.hardware.looked_at import Node, reasons
from tests.gpus import Code, FabricHealth, PciAddress, RemappedRows, health_of, taints_of


def told(condition: Condition) -> tuple[list[tuple[str, str, str]], str]:
    """The taints without the domain, and the word for the kubelet."""
    found = verdicts_of_problems(PciAddress(0, 0, 0, 0), tuple(problems_of(condition)))
    taints = taints_of(found)
    named = [(one.key.removeprefix("gpu.nvidia.com/"), one.value, str(one.effect)) for one in taints]
    return [*named], health_of(found).word


def rows(*, pending: bool = False, failed: bool = False) -> Condition:
    return Condition(rows=RemappedRows(1, 1, pending=pending, failed=failed), page_pending=False)


def fabric(summary: Literal["healthy", "unhealthy", "limited-capacity", "unknown"], *found: str) -> Condition:
    return Condition(fabric=FabricHealth(summary, found))


@pytest.mark.parametrize(
    ("condition", "taint", "word"),
    [
        (Condition("reset"), ("needs-reset", "reset", "NoSchedule"), "Unhealthy"),
        (Condition("bus-reset"), ("needs-reset", "bus-reset", "NoSchedule"), "Unhealthy"),
        (Condition("drain-and-reset"), ("needs-reset", "drain-and-reset", "NoSchedule"), "Healthy"),
        (Condition("node-reboot"), ("needs-reboot", "node-reboot", "NoSchedule"), "Unhealthy"),
        (Condition("system-reboot"), ("needs-reboot", "system-reboot", "NoSchedule"), "Unhealthy"),
        (Condition("drain-p2p"), ("fabric", "drain-p2p", "NoSchedule"), "Unhealthy"),
        (Condition("recover-imex"), ("fabric", "recover-imex", "NoSchedule"), "Unhealthy"),
        (Condition(unrepairable=True), ("memory", "unrepairable", "NoSchedule"), "Unhealthy"),
        (rows(failed=True), ("memory", "rows-failed", "NoSchedule"), "Unhealthy"),
        (rows(pending=True), ("memory", "rows-pending", "None"), "Healthy"),
        (Condition(page_pending=True), ("memory", "page-pending", "NoSchedule"), "Healthy"),
        (fabric("unhealthy", "route-unhealthy"), ("fabric", "unhealthy", "NoSchedule"), "Unhealthy"),
        (fabric("healthy", "degraded-bandwidth"), ("fabric", "degraded-bandwidth", "None"), "Healthy"),
        (fabric("limited-capacity"), ("fabric", "limited-capacity", "None"), "Healthy"),
        # What is well or not told is no problem.
        *((one, None, "Healthy") for one in (NOT_ASKED, Condition("none"), rows(), fabric("healthy"))),
        (fabric("unknown"), None, "Healthy"),
    ],
)
def test_what_is_wrong_keeps_new_pods_away_or_is_told(
    condition: Condition, taint: tuple[str, str, str] | None, word: str
) -> None:
    assert told(condition) == ([taint] if taint else [], word)


def test_the_worst_of_several_faults_names_the_taint() -> None:
    rows = RemappedRows(0, 1, pending=True, failed=False)
    assert told(Condition(rows=rows, page_pending=True))[0] == [("memory", "page-pending", "NoSchedule")]


def test_a_look_reads_it_and_only_the_sick_gpu_has_a_problem(node: Node) -> None:
    node.machine.recovery_action(2, "reset")
    node.machine.rows(5, RemappedRows(0, 1, pending=True, failed=False))
    inventory = node.discovery.snapshot()
    assert reasons(inventory) == {2: ["reset-required"], 5: ["memory-repairable"]}
    assert inventory.gpus[0].condition.recovery_action == "none"
    node.machine.reset(2)
    node.machine.reset(5)
    assert reasons(node.discovery.snapshot()) == {}


def test_a_fault_counts_on_while_its_call_fails_and_being_well_does_not(node: Node) -> None:
    node.machine.recovery_action(2, "reset")
    node.discovery.snapshot()
    for gpu in (1, 2):
        node.machine.fail("recovery_action", gpu=gpu, code=Code.NO_PERMISSION)
    inventory = node.discovery.snapshot()
    assert reasons(inventory) == {1: ["error"], 2: ["error", "reset-required"]}
    assert inventory.gpus[1].condition.recovery_action is None


def test_what_a_board_cannot_tell_is_asked_once_for_each_nvidia_driver(tmp_path: Path) -> None:
    node = Node("dgx-a100", tmp_path)
    machine, discovery = node.machine, node.discovery
    first = discovery.snapshot().gpus[0].condition.unsupported
    assert "unrepairable_memory" in first
    machine.fail("unrepairable_memory", gpu=0)
    assert reasons(discovery.snapshot()) == {}
    machine.driver_gone()
    machine.driver_back("615.36.01")
    assert "failing" in reasons(discovery.snapshot())[0]
    discovery.close()


def test_what_was_bad_counts_on_and_that_all_was_well_does_not() -> None:
    bad = Condition("reset", unrepairable=True, unsupported=frozenset({"fabric_health"}))
    assert without_answers(bad) == bad
    assert without_answers(replace(bad, recovery_action="none")).recovery_action is None
