"""NVML fails, hangs and lies about memory limits as a test asks, and says afterwards what is true."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from driver.errors import ConfigError
from driver.nvml.api import Code, NoMemoryLimits, NotFound, NotSupported, NvmlCallFailed
from driver.nvml.memory_limits import NO_LIMIT_BYTES, MemoryLimits
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.nvml.fake_nvml import FakeDevice

GIB = 2**30


class Gpu:
    """The first GPU of a machine, and the group of a container."""

    def __init__(self, machine: FakeMachine, folder: Path) -> None:
        self.machine = machine
        self.group = machine.pretend_cgroups(folder / "cgroups").make("/pod/a").path
        nvml = machine.nvml()
        nvml.init()
        self.device: FakeDevice = nvml.device_by_index(0)


@pytest.fixture
def gpu(tmp_path: Path) -> Gpu:
    """A GPU that has memory limits."""
    return Gpu(FakeMachine.open("l4-quad"), tmp_path)


def test_a_lie_says_yes_and_holds_nobody(gpu: Gpu) -> None:
    gpu.machine.lie("set_memory_limits", gpu=0, times=1)
    gpu.device.set_memory_limits(gpu.group, 0, GIB)
    with pytest.raises(NoMemoryLimits):
        gpu.device.memory_limits(gpu.group)
    gpu.machine.cuda(0, gpu.group).allocate(2 * GIB)
    gpu.device.set_memory_limits(gpu.group, 0, GIB)
    assert gpu.device.memory_limits(gpu.group) == MemoryLimits(0, GIB, 2 * GIB)


def test_a_lie_is_told_on_one_gpu_and_of_what_is_right_alone(gpu: Gpu) -> None:
    gpu.machine.lie("set_memory_limits", gpu=1)
    gpu.device.set_memory_limits(gpu.group, 0, GIB)
    assert gpu.device.memory_limits(gpu.group).hard_bytes == GIB
    gpu.machine.lie("set_memory_limits")
    with pytest.raises(NvmlCallFailed) as caught:
        gpu.device.set_memory_limits(gpu.group, 2, 1)
    assert caught.value.code == Code.INVALID_ARGUMENT


def test_other_settings_can_be_lied_about_and_answers_cannot(gpu: Gpu) -> None:
    gpu.machine.lie("set_compute_mode")
    gpu.device.set_compute_mode("prohibited")
    assert gpu.device.compute_mode() == "default"
    for call in ("memory_limits", "uuid", "create_gpu_instance"):
        with pytest.raises(ConfigError, match=call):
            gpu.machine.lie(call)


@pytest.mark.parametrize("code", [Code.NO_PERMISSION, Code.OPERATING_SYSTEM, Code.UNKNOWN])
def test_a_call_that_fails_changes_nothing_and_one_that_fails_late_has_done_it(gpu: Gpu, code: Code) -> None:
    gpu.machine.fail("set_memory_limits", code=code, times=1)
    gpu.machine.fail_after("set_memory_limits", code=code, times=1)
    with pytest.raises(NvmlCallFailed) as caught:
        gpu.device.set_memory_limits(gpu.group, 0, GIB)
    assert caught.value.code == code
    with pytest.raises(NoMemoryLimits):
        gpu.device.memory_limits(gpu.group)
    with pytest.raises(NvmlCallFailed):
        gpu.device.set_memory_limits(gpu.group, 0, GIB)
    assert gpu.device.memory_limits(gpu.group) == MemoryLimits(0, GIB)


def test_a_call_that_hangs_is_done_when_it_may(gpu: Gpu) -> None:
    gpu.machine.hang("set_memory_limits", gpu=0)
    caller = threading.Thread(target=gpu.device.set_memory_limits, args=(gpu.group, 0, GIB), daemon=True)
    caller.start()
    caller.join(0.1)
    assert caller.is_alive()
    with pytest.raises(NoMemoryLimits):
        gpu.device.memory_limits(gpu.group)
    gpu.machine.heal()
    caller.join(20)
    assert gpu.device.memory_limits(gpu.group) == MemoryLimits(0, GIB)


def test_no_limits_can_be_told_as_a_driver_that_has_none_tells_it(gpu: Gpu) -> None:
    gpu.machine.not_supported("memory_limits")
    with pytest.raises(NotSupported):
        gpu.device.memory_limits(gpu.group)


def test_a_driver_may_hold_whole_units_alone(gpu: Gpu) -> None:
    gpu.machine.count_memory(unit_bytes=512 * 2**20)
    gpu.device.set_memory_limits(gpu.group, 1, GIB + 1)
    assert gpu.device.memory_limits(gpu.group) == MemoryLimits(512 * 2**20, GIB + 512 * 2**20)
    gpu.device.set_memory_limits(gpu.group, GIB, gpu.device.memory_bytes())
    assert gpu.device.memory_limits(gpu.group) == MemoryLimits(GIB, gpu.device.memory_bytes())
    gpu.device.set_memory_limits(gpu.group, 0, NO_LIMIT_BYTES)
    with pytest.raises(NoMemoryLimits):
        gpu.device.memory_limits(gpu.group)


def test_a_driver_may_know_no_group_but_those_with_limits(gpu: Gpu) -> None:
    gpu.machine.count_memory(silent=True)
    with pytest.raises(NotSupported):
        gpu.device.memory_limits(gpu.group)
    gpu.device.set_memory_limits(gpu.group, 0, GIB)
    assert gpu.device.memory_limits(gpu.group) == MemoryLimits(0, GIB)


def test_a_gpu_that_is_gone_is_no_gpu_without_limits(gpu: Gpu) -> None:
    gpu.machine.remove(0)
    with pytest.raises(NotFound) as caught:
        gpu.device.memory_limits(gpu.group)
    assert not isinstance(caught.value, NoMemoryLimits)


def test_limits_go_when_mig_is_turned_on(tmp_path: Path) -> None:
    machine = FakeMachine.open("hgx-h100")
    machine.driver_gone()
    machine.driver_back("615.71.09")
    gpu = Gpu(machine, tmp_path)
    gpu.device.set_memory_limits(gpu.group, 0, GIB)
    gpu.device.set_mig_mode(True)
    for call in (gpu.device.memory_limits, lambda group: gpu.device.set_memory_limits(group, 0, GIB)):
        with pytest.raises(NotSupported):
            call(gpu.group)
    gpu.device.set_mig_mode(False)
    with pytest.raises(NoMemoryLimits):
        gpu.device.memory_limits(gpu.group)


@pytest.mark.parametrize("path", ["/pod/a", "/sys/fs/cgroup/../a", "/proc", "sys/fs/cgroup/a", ""])
def test_a_path_outside_of_the_control_groups_is_no_argument(gpu: Gpu, path: str) -> None:
    with pytest.raises(NvmlCallFailed) as caught:
        gpu.device.set_memory_limits(path, 0, GIB)
    assert caught.value.code == Code.INVALID_ARGUMENT


def test_a_machine_without_pretended_groups_has_those_of_this_one() -> None:
    machine = FakeMachine.open("l4-quad")
    nvml = machine.nvml()
    nvml.init()
    with pytest.raises(NoMemoryLimits):
        nvml.device_by_index(0).memory_limits("/sys/fs/cgroup")
    with pytest.raises(NvmlCallFailed) as caught:
        nvml.device_by_index(0).set_memory_limits("/sys/fs/cgroup/no-such-group", 0, GIB)
    assert caught.value.code == Code.OPERATING_SYSTEM
