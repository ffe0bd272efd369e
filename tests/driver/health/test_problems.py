"""Problems become taints and health words by one rule set."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.health.judge import taint_of_failure, taints_of_doubt, verdicts_of_problems
from tests.gpus import (
    Code,
    DriverNotLoaded,
    Health,
    NvmlCallFailed,
    NvmlError,
    NvmlTimeout,
    PciAddress,
    Problem,
    Taint,
    health_of,
    taints_of,
)

LOST = Problem("nvmlDeviceGetUUID", "lost", "it is lost")
HUNG = Problem("nvmlDeviceGetMigMode", "hung", "it hangs")
ERROR = Problem("nvmlDeviceGetMemoryInfo", "error", "it fails")

PCI = PciAddress(0, 0, 0, 0)


def taints(problems: Sequence[Problem]) -> tuple[Taint, ...]:
    return taints_of(verdicts_of_problems(PCI, problems))


def health(problems: Sequence[Problem]) -> Health:
    return health_of(verdicts_of_problems(PCI, problems))


@pytest.mark.parametrize(
    ("problems", "expected", "word"),
    [
        ([], [], "Healthy"),
        ([LOST], ["gpu-lost nvmlDeviceGetUUID NoSchedule"], "Unhealthy"),
        ([HUNG], ["unresponsive nvmlDeviceGetMigMode NoSchedule"], "Unhealthy"),
        # One that does not tell all is only marked.
        ([ERROR], ["unmonitored nvmlDeviceGetMemoryInfo None"], "Unknown"),
        # On these CUDA may not start.
        ([Problem("nvmlX", "reset-required", "")], ["needs-reset nvmlX NoSchedule"], "Unhealthy"),
        ([Problem("nvmlX", "failing", "")], ["failing nvmlX NoSchedule"], "Unknown"),
        ([Problem("nvmlX", "fabric", "")], ["fabric nvmlX NoSchedule"], "Unhealthy"),
        ([Problem("nvmlX", "unlicensed", "")], ["unlicensed nvmlX NoSchedule"], "Unhealthy"),
        # Each kind gives one taint, named by its first call; the worst gives the word.
        (
            [ERROR, LOST, replace(ERROR, call="nvmlDeviceGetName")],
            ["gpu-lost nvmlDeviceGetUUID NoSchedule", "unmonitored nvmlDeviceGetMemoryInfo None"],
            "Unhealthy",
        ),
    ],
)
def test_each_kind_of_problem_gives_one_taint_and_the_worst_the_word(
    problems: list[Problem], expected: list[str], word: str
) -> None:
    found = [
        f"{one.key.removeprefix('gpu.nvidia.com/')} {one.value} {one.effect}" for one in taints(problems)
    ]
    assert (found, health(problems).word) == (expected, word)


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
