"""NVML fails, hangs and lies about memory limits as a test asks, and says afterwards what is true."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.nvml.api import Code, NoMemoryLimits, NotSupported, NvmlCallFailed
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


@pytest.mark.parametrize("path", ["/pod/a", "/sys/fs/cgroup/../a", "/proc", "sys/fs/cgroup/a", ""])
def test_a_path_outside_of_the_control_groups_is_no_argument(gpu: Gpu, path: str) -> None:
    with pytest.raises(NvmlCallFailed) as caught:
        gpu.device.set_memory_limits(path, 0, GIB)
    assert caught.value.code == Code.INVALID_ARGUMENT
