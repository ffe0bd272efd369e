"""The checks of NVML find nothing wrong on any fake machine, and name what is wrong with a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from driver.hardware.gpu import Problem
from driver.nvml.api import Code
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.machine.spec import known_machines
from gpuctl.doctor.check import Finding, require, run_checks
from gpuctl.verify.checks.nvml_checks import (
    NVML_CHECKS,
    find_answers,
    find_contract,
    find_events,
    find_memory_limits,
    find_permissions,
)
from gpuctl.verify.subject import Subject
from tests.gpuctl.verify.subjects import machine_in, subject_of

SOON = 0.5


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    """Four L4, whose driver limits memory."""
    return machine_in(tmp_path, "l4-quad")


@pytest.fixture
def subject(tmp_path: Path, machine: FakeMachine) -> Subject:
    """That node, read while all was well."""
    return subject_of(tmp_path, machine)


def text(finding: Finding) -> str:
    """All that a finding says."""
    return "\n".join((finding.message, finding.way_out, *finding.details))


def test_nothing_is_wrong_on_any_fake_machine() -> None:
    wrong, found = [], set()
    for name in known_machines():
        with TemporaryDirectory() as folder:
            results = run_checks(
                "nvml", NVML_CHECKS, subject_of(Path(folder), machine_in(Path(folder), name))
            )
        wrong += [(name, one) for one in results if one.status in ("warn", "fail")]
        found |= {one.check for one in results if one.status == "ok"}

    assert wrong == []
    assert found == {one.name for one in NVML_CHECKS}


def test_a_call_that_hangs_is_named_with_its_gpu_and_the_rest_is_not_run(
    machine: FakeMachine, subject: Subject
) -> None:
    machine.hang("name", gpu=2)
    contract, answers = find_contract(subject, SOON), find_answers(subject, SOON)
    machine.heal()

    hanging = f"nvmlDeviceGetName of {machine.pci(2)} did not return within 0.5 s"
    assert (contract.status, answers.status) == ("fail", "fail")
    assert hanging in contract.message
    assert "14 not run" in text(contract)
    assert f"{machine.pci(2)}: {hanging}" in answers.details
    assert any(
        line.startswith(f"{machine.pci(0)}, {machine.pci(1)}, {machine.pci(3)}: answers")
        for line in answers.details
    )


def test_clauses_that_need_to_be_alone_are_not_run_beside_a_session_that_hangs(subject: Subject) -> None:
    (first, *others) = subject.gpus
    hung = replace(first, problems=(Problem("nvmlDeviceGetName", "hung", "did not return"),))
    inventory = replace(require(subject.seen.inventory), gpus=(hung, *others))
    found = find_contract(replace(subject, seen=replace(subject.seen, inventory=inventory)))

    assert "4 not run" in found.message


@pytest.mark.parametrize(
    ("call", "status", "words"),
    [
        ("temperature_celsius", "warn", "nvmlDeviceGetTemperature of {} failed with UNKNOWN (999)"),
        ("memory_bytes", "fail", "nvmlDeviceGetMemoryInfo of {} failed with UNKNOWN (999) (needed: "),
    ],
)
def test_a_call_that_fails_is_a_failure_only_if_the_driver_needs_it(
    machine: FakeMachine, subject: Subject, call: str, status: str, words: str
) -> None:
    machine.fail(call, gpu=3)
    found = find_answers(subject)

    assert found.status == status
    assert words.format(machine.pci(3)) in text(found)


def test_a_call_that_fails_once_is_a_warning(machine: FakeMachine, subject: Subject) -> None:
    machine.fail("memory_bytes", gpu=0, times=1)
    answers = find_answers(subject)
    machine.fail("memory_bytes", gpu=0, times=1)
    contract = find_contract(subject)

    assert (answers.status, contract.status) == ("warn", "warn")
    assert "failed with UNKNOWN (999), and was answered only the second time" in text(answers)
    assert f"description: {machine.pci(0)}: nvmlDeviceGetMemoryInfo" in text(contract)


def test_a_broken_promise_is_named_with_the_gpu_and_what_was_wrong(
    machine: FakeMachine, subject: Subject
) -> None:
    machine.not_supported("architecture", gpu=1)
    found = find_contract(subject)

    assert found.status == "fail"
    assert f"description: {machine.pci(1)}: it does not answer architecture" in found.details
    assert any(
        line.startswith("promised is: description: Each question about what a GPU is")
        for line in found.details
    )


def test_a_lost_gpu_is_named_and_is_no_breach_of_the_contract(machine: FakeMachine, subject: Subject) -> None:
    machine.lose(1)

    assert find_contract(subject).status == "ok"
    answers = find_answers(subject)
    assert answers.status == "fail"
    assert (
        f"{machine.pci(1)}: nvmlDeviceGetHandleByPciBusId_v2 of {machine.pci(1)} failed with GPU_IS_LOST"
        in text(answers)
    )


def test_a_gpu_that_was_lost_before_is_named(tmp_path: Path, machine: FakeMachine) -> None:
    machine.lose(1)
    found = find_answers(subject_of(tmp_path, machine))

    assert found.status == "fail"
    assert f"{machine.pci(1)}: NVML does not identify it" in text(found)


@pytest.mark.parametrize(("call", "status"), [("memory_use", "fail"), ("power_milliwatts", "warn")])
def test_refused_calls_are_named_with_what_they_are_needed_for(
    machine: FakeMachine, subject: Subject, call: str, status: str
) -> None:
    assert find_permissions(subject).status == "ok"
    machine.fail(call, code=Code.NO_PERMISSION)
    found = find_permissions(subject)

    assert found.status == status
    assert "NVML refuses 1 call to user " in found.message
    assert "CAP_SYS_ADMIN" in found.message
    assert "nvmlDeviceSetMigMode" in text(found)
    assert find_answers(subject).status == "ok"


def test_a_gpu_without_events_is_named(machine: FakeMachine, subject: Subject) -> None:
    machine.fail("register_events", gpu=2)
    found = find_events(subject)

    assert found.status == "warn"
    assert f"{machine.pci(2)}: no events" in found.details


def silent(machine: FakeMachine) -> None:
    machine.count_memory(silent=True)


def refusing(machine: FakeMachine) -> None:
    machine.fail("memory_limits", code=Code.NO_PERMISSION)


@pytest.mark.parametrize(("change", "status"), [(silent, "ok"), (refusing, "warn")])
def test_support_of_memory_limits_is_found_without_setting_any(
    tmp_path: Path, machine: FakeMachine, change: Callable[[FakeMachine], None], status: str
) -> None:
    change(machine)
    subject = subject_of(tmp_path, machine)
    machine.fail("set_memory_limits")

    assert find_memory_limits(subject).status == status
