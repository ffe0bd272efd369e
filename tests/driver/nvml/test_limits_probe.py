"""Whether there are memory limits is told by the root of cgroup v2, with either of NVML's two accounts."""

import pytest

from driver.nvml.api import NotFound
from driver.nvml.limits_probe import can_be_limited
from tests.gpus import Code, FakeMachine, Guard, NvmlCallFailed


def asked(machine: FakeMachine) -> bool:
    """The answer about the first GPU."""
    nvml, guard = machine.nvml(), Guard()
    nvml.init()
    device = nvml.device_by_index(0)
    try:
        return guard.run("GPU 0", lambda watch: can_be_limited(device, watch))
    finally:
        guard.close()


@pytest.fixture
def machine() -> FakeMachine:
    """A machine with limits."""
    return FakeMachine.open("l4-quad")


def test_a_root_without_limits_shows_that_there_can_be_some(machine: FakeMachine) -> None:
    machine.fail("set_memory_limits")
    assert asked(machine) is True


def test_a_driver_without_the_function_is_asked_no_more() -> None:
    older = FakeMachine.open("hgx-h100")
    older.fail("set_memory_limits")
    assert asked(older) is False


@pytest.mark.parametrize(
    ("code", "answer"),
    [(None, True), (Code.NOT_SUPPORTED, False), (Code.NOT_FOUND, True)],
    ids=["limits can be set", "none can be set", "the root has no files of dmem"],
)
def test_a_driver_that_knows_no_group_without_limits_is_asked_to_set_some(
    machine: FakeMachine, code: Code | None, answer: bool
) -> None:
    machine.not_supported("memory_limits")
    if code is not None:
        machine.fail("set_memory_limits", code=code)
    assert asked(machine) is answer
    machine.heal()
    nvml = machine.nvml()
    nvml.init()
    with pytest.raises(NotFound):  # the question leaves no limits
        nvml.device_by_index(0).memory_limits("/sys/fs/cgroup")


@pytest.mark.parametrize("call", ["memory_limits", "set_memory_limits"])
def test_a_gpu_that_is_gone_tells_nothing(machine: FakeMachine, call: str) -> None:
    machine.fail(call, code=Code.GPU_NOT_FOUND)
    if call == "set_memory_limits":
        machine.not_supported("memory_limits")
    with pytest.raises(NotFound):
        asked(machine)


def test_a_call_that_fails_tells_nothing(machine: FakeMachine) -> None:
    machine.fail("memory_limits", code=Code.NO_PERMISSION)
    with pytest.raises(NvmlCallFailed):
        asked(machine)
