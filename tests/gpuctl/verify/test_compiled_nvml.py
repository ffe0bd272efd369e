"""The checks of NVML over the real binding and a compiled library, which may hang, fail once or lie."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuctl.doctor.check import run_checks
from gpuctl.verify.checks.nvml_checks import NVML_CHECKS, find_answers, find_contract, find_events
from gpuctl.verify.subject import Subject
from tests import needs
from tests.driver.nvml.c_library import unload
from tests.gpuctl.verify.subjects import machine_in, subject_with_library
from tests.nvml_library.library import NvmlDouble, compile_nvml

pytestmark = needs.GCC

SOON = 0.5
NAME = "nvmlDeviceGetName"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_nvml(tmp_path_factory.mktemp("library") / "nvml.so")


@pytest.fixture
def node(tmp_path: Path, compiled: Path) -> Iterator[tuple[Subject, NvmlDouble]]:
    """Four L4 and their library."""
    unload()
    yield subject_with_library(tmp_path, machine_in(tmp_path, "l4-quad"), compiled)
    unload()


def test_nothing_is_wrong_with_the_library(tmp_path: Path, node: tuple[Subject, NvmlDouble]) -> None:
    subject, double = node
    double.pretend_cgroups(tmp_path / "cgroups")
    results = run_checks("nvml", NVML_CHECKS, subject)

    assert {one.check: one.status for one in results} == {
        "nvml-contract": "ok",
        "nvml-answers": "ok",
        "nvml-permissions": "ok",
        "nvml-events": "ok",
        "mig-tables": "skipped",
        "memory-limits-support": "ok",
    }


def test_a_c_function_that_hangs_is_named_and_its_node_is_well_afterwards(
    node: tuple[Subject, NvmlDouble],
) -> None:
    subject, double = node
    gpu = subject.gpus[1]
    double.spoil(NAME, "hang", gpu.uuid)
    contract, answers, events = (
        find_contract(subject, SOON),
        find_answers(subject, SOON),
        find_events(subject),
    )
    double.heal()

    hanging = f"{NAME} of {gpu.pci} did not return within 0.5 s"
    assert contract.status == "fail"
    assert hanging in contract.message
    assert answers.status == "fail"
    assert f"{gpu.pci}: {hanging}" in answers.details
    assert events.status == "ok"
    assert find_answers(subject).status == "ok"


def test_a_c_function_that_fails_once_is_a_warning(node: tuple[Subject, NvmlDouble]) -> None:
    subject, double = node
    gpu = subject.gpus[2]
    double.spoil(NAME, "once 999", gpu.uuid)
    answers = find_answers(subject)
    double.spoil(NAME, "once 999", gpu.uuid)
    contract = find_contract(subject)

    assert (answers.status, contract.status) == ("warn", "warn")
    (line, *_) = answers.details
    assert line.startswith(f"{gpu.pci}: {NAME} of {gpu.pci} failed with UNKNOWN (999), and was answered only")


def test_a_c_function_that_lies_is_found_out(node: tuple[Subject, NvmlDouble]) -> None:
    subject, double = node
    gpu = subject.gpus[3]
    double.spoil("nvmlDeviceGetMinorNumber", "lie", gpu.uuid)
    found = find_answers(subject)

    assert found.status == "fail"
    assert found.details[0].startswith(f"{gpu.pci}: nvmlDeviceGetMinorNumber answered ")
