"""Problems become taints and health words by one rule set."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.devices.device import Taint
from driver.errors import NvmlError
from driver.hardware.gpu import Problem, Reason
from driver.health.judge import taint_of_failure, taints_of_doubt, verdicts_of_problems
from driver.health.verdict import Health, health_of, taints_of
from driver.nvml.api import Code, DriverNotLoaded, NvmlCallFailed, NvmlTimeout
from driver.nvml.pci_address import PciAddress

LOST = Problem("nvmlDeviceGetUUID", "lost", "it is lost")
HUNG = Problem("nvmlDeviceGetMigMode", "hung", "it hangs")
ERROR = Problem("nvmlDeviceGetMemoryInfo", "error", "it fails")


PCI = PciAddress(0, 0, 0, 0)


def taints(problems: Sequence[Problem]) -> tuple[Taint, ...]:
    return taints_of(verdicts_of_problems(PCI, problems))


def health(problems: Sequence[Problem]) -> Health:
    return health_of(verdicts_of_problems(PCI, problems))


def test_a_gpu_without_problems_has_no_taint_and_is_healthy() -> None:
    assert taints(()) == ()
    assert (health(()).word, health(()).message) == ("Healthy", "")


def test_a_lost_gpu_takes_no_new_pod() -> None:
    assert taints([LOST]) == (Taint("gpu.nvidia.com/gpu-lost", "nvmlDeviceGetUUID", "NoSchedule"),)


def test_a_hung_gpu_takes_no_new_pod() -> None:
    assert taints([HUNG]) == (Taint("gpu.nvidia.com/unresponsive", "nvmlDeviceGetMigMode", "NoSchedule"),)


def test_a_gpu_that_does_not_tell_all_is_only_marked() -> None:
    assert taints([ERROR]) == (Taint("gpu.nvidia.com/unmonitored", "nvmlDeviceGetMemoryInfo", "None"),)


@pytest.mark.parametrize(
    ("reason", "key"),
    [
        ("reset-required", "gpu.nvidia.com/needs-reset"),
        ("failing", "gpu.nvidia.com/failing"),
        ("fabric", "gpu.nvidia.com/fabric"),
        ("unlicensed", "gpu.nvidia.com/unlicensed"),
    ],
)
def test_a_gpu_on_which_cuda_may_not_start_takes_no_new_pod(reason: Reason, key: str) -> None:
    assert taints([Problem("nvmlX", reason, "")]) == (Taint(key, "nvmlX", "NoSchedule"),)


@pytest.mark.parametrize("problems", [[], [ERROR], [LOST], [ERROR, HUNG]])
def test_what_nobody_can_see_takes_no_new_pod_whatever_is_wrong(problems: list[Problem]) -> None:
    found = taints_of_doubt(problems)
    assert [taint.effect for taint in found].count("NoSchedule") == 1
    assert set(taints(problems)) <= set(found)


@pytest.mark.parametrize(
    ("error", "key", "effect"),
    [
        (DriverNotLoaded("nvmlInit", Code.DRIVER_NOT_LOADED), "driver-not-loaded", "NoSchedule"),
        (NvmlTimeout("nvmlInit", "the node", 5.0), "unresponsive", "NoSchedule"),
        (NvmlCallFailed("nvmlInit", Code.LIB_RM_VERSION_MISMATCH), "failing", "NoSchedule"),
        (NvmlCallFailed("nvmlInit", Code.NO_PERMISSION), "failing", "NoSchedule"),
    ],
)
def test_a_node_whose_nvml_fails_takes_no_new_pod(error: NvmlError, key: str, effect: str) -> None:
    taint = taint_of_failure(error)
    assert (taint.key, taint.effect) == (f"gpu.nvidia.com/{key}", effect)


def test_each_kind_of_problem_gives_one_taint_named_by_its_first_call() -> None:
    later = Problem("nvmlDeviceGetName", "error", "it fails too")
    assert [(taint.key, taint.value) for taint in taints([ERROR, LOST, later])] == [
        ("gpu.nvidia.com/gpu-lost", "nvmlDeviceGetUUID"),
        ("gpu.nvidia.com/unmonitored", "nvmlDeviceGetMemoryInfo"),
    ]


@pytest.mark.parametrize(
    ("problems", "word"),
    [
        ([LOST], "Unhealthy"),
        ([HUNG], "Unhealthy"),
        ([Problem("nvmlX", "unlicensed", "")], "Unhealthy"),
        ([ERROR], "Unknown"),
        ([ERROR, LOST], "Unhealthy"),
    ],
)
def test_the_worst_problem_gives_the_word(
    problems: list[Problem], word: Literal["Unhealthy", "Unknown"]
) -> None:
    assert health(problems).word == word


def test_the_message_tells_every_problem() -> None:
    assert health([LOST, ERROR]).message == "it is lost; it fails"


@given(st.text(), st.text(min_size=1))
def test_values_are_label_values_and_messages_fit_the_stream(call: str, message: str) -> None:
    problem = Problem(call, "lost", message * 300)
    value = taints([problem])[0].value
    assert value == "" or (
        len(value) <= 63 and re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", value)
    )
    assert len(health([problem]).message.encode()) <= 1024
