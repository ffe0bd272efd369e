"""CUDA clients have what their control group may have, and what the GPU has, and not a byte more."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from driver.errors import ConfigError
from driver.nvml.api import NoMemoryLimits
from driver.nvml.memory_limits import MemoryLimits
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.memory.cuda import ContextLost, CudaFailed, FakeCudaClient, OutOfMemory

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu.machine.cgroups import FakeCgroups
    from fakegpu.nvml.fake_nvml import FakeDevice

GIB = 2**30
GPU_BYTES = (23034 - 470) * 2**20
"""What clients can have: the driver keeps 470 MiB for itself."""


class Node:
    """A machine with two containers' groups, and NVML on its first GPU."""

    def __init__(self, machine: FakeMachine, root: Path) -> None:
        self.machine = machine
        self.groups: FakeCgroups = machine.pretend_cgroups(root)
        self.one = self.groups.make("/pod/one").path
        self.two = self.groups.make("/pod/two").path
        self.nvml = machine.nvml()
        self.nvml.init()

    @property
    def gpu(self) -> FakeDevice:
        """The first GPU, by a fresh handle."""
        return self.nvml.device_by_index(0)

    def cuda(self, cgroup: str) -> FakeCudaClient:
        """A client on the first GPU."""
        return self.machine.cuda(0, cgroup)


@pytest.fixture(params=["memory", "file"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    """A machine with R615, with the state in memory and in a file."""
    state = f"@{tmp_path / 'state.json'}" if request.param == "file" else ""
    return Node(FakeMachine.open(f"fake:l4-quad{state}"), tmp_path / "cgroups")


def test_a_client_has_its_groups_limit_to_the_last_byte(node: Node) -> None:
    node.gpu.set_memory_limits(node.one, 0, GIB)
    client = node.cuda(node.one)
    client.allocate(GIB - 1)
    client.allocate(1)
    with pytest.raises(OutOfMemory, match=f"{node.one} uses {GIB} of {GIB} bytes"):
        client.allocate(1)
    assert client.allocated_bytes == GIB
    assert node.gpu.memory_limits(node.one) == MemoryLimits(0, GIB, GIB)


def test_all_clients_of_a_group_share_its_limit(node: Node) -> None:
    node.gpu.set_memory_limits(node.one, 0, GIB)
    first, second = node.cuda(node.one), node.cuda(node.one)
    first.allocate(GIB)
    with pytest.raises(OutOfMemory):
        second.allocate(1)
    first.free(7)
    second.allocate(7)
    first.end()
    second.allocate(GIB - 7)
    assert node.gpu.memory_limits(node.one).used_bytes == second.allocated_bytes == GIB


def test_a_group_without_limits_has_what_the_gpu_has_left(node: Node) -> None:
    node.gpu.set_memory_limits(node.one, GIB, GIB)
    limited, free = node.cuda(node.one), node.cuda(node.two)
    limited.allocate(GIB)
    free.allocate(GPU_BYTES - GIB)
    with pytest.raises(OutOfMemory, match="0 bytes are free"):
        free.allocate(1)


def test_a_soft_limit_takes_nothing_from_who_borrowed(node: Node) -> None:
    node.gpu.set_memory_limits(node.one, 10 * GIB, 10 * GIB)
    borrower, guaranteed = node.cuda(node.two), node.cuda(node.one)
    borrower.allocate(GPU_BYTES)
    with pytest.raises(OutOfMemory, match="0 bytes are free"):
        guaranteed.allocate(1)


def test_a_nested_group_is_held_by_the_nearest_limits_above(node: Node) -> None:
    nested = node.groups.make("/pod/one/nested/deeper").path
    node.gpu.set_memory_limits(node.one, 0, GIB)
    inside, outside = node.cuda(nested), node.cuda(node.one)
    inside.allocate(GIB - 1)
    with pytest.raises(OutOfMemory):
        outside.allocate(2)
    assert node.gpu.memory_limits(nested) == MemoryLimits(0, GIB, GIB - 1)
    beside = node.groups.make("/pod/one-more").path
    node.cuda(beside).allocate(2 * GIB)


def test_limits_of_its_own_take_a_nested_group_out_of_those_above(node: Node) -> None:
    nested = node.groups.make("/pod/one/nested").path
    node.gpu.set_memory_limits(node.one, 0, GIB)
    node.gpu.set_memory_limits(nested, 0, 2 * GIB)
    node.cuda(nested).allocate(2 * GIB)
    assert node.gpu.memory_limits(node.one).used_bytes == 0


def test_lowering_a_limit_below_what_is_used_takes_nothing(node: Node) -> None:
    node.gpu.set_memory_limits(node.one, 0, 2 * GIB)
    client = node.cuda(node.one)
    client.allocate(2 * GIB)
    node.gpu.set_memory_limits(node.one, 0, GIB)
    with pytest.raises(OutOfMemory):
        client.allocate(1)
    client.free(GIB)
    with pytest.raises(OutOfMemory):
        client.allocate(1)
    assert client.allocated_bytes == GIB


def test_limits_are_for_each_gpu(node: Node) -> None:
    node.gpu.set_memory_limits(node.one, 0, 0)
    with pytest.raises(OutOfMemory):
        node.cuda(node.one).allocate(1)
    node.machine.cuda(1, node.one).allocate(GIB)
    assert node.gpu.memory_limits(node.one).used_bytes == 0


def test_limits_and_contexts_go_with_their_group(node: Node) -> None:
    node.gpu.set_memory_limits(node.one, 0, GIB)
    client = node.cuda(node.one)
    client.allocate(GIB)
    node.groups.remove("/pod/one")
    assert client.allocated_bytes == 0
    with pytest.raises(ContextLost):
        client.allocate(1)
    node.cuda(node.two).allocate(GPU_BYTES)
    assert node.groups.make("/pod/one").path == node.one
    with pytest.raises(NoMemoryLimits):
        node.gpu.memory_limits(node.one)
    assert client.allocated_bytes == 0


def test_limits_and_contexts_go_with_a_load_of_the_driver(node: Node) -> None:
    node.gpu.set_memory_limits(node.one, 0, GIB)
    client = node.cuda(node.one)
    client.allocate(GIB)
    node.machine.driver_gone()
    with pytest.raises(CudaFailed):
        node.cuda(node.one)
    node.machine.driver_back()
    node.nvml.init()
    with pytest.raises(NoMemoryLimits):
        node.gpu.memory_limits(node.one)
    with pytest.raises(ContextLost):
        client.free(1)
    node.cuda(node.one).allocate(2 * GIB)


def test_a_reset_waits_for_clients_and_clears_limits(node: Node) -> None:
    node.gpu.set_memory_limits(node.one, 0, GIB)
    client = node.cuda(node.one)
    with pytest.raises(ConfigError, match="is in use"):
        node.machine.reset(0)
    client.end()
    node.machine.reset(0)
    with pytest.raises(NoMemoryLimits):
        node.gpu.memory_limits(node.one)


def test_a_restart_leaves_no_group(node: Node) -> None:
    node.gpu.set_memory_limits(node.one, 0, GIB)
    client = node.cuda(node.one)
    node.machine.reboot()
    assert client.allocated_bytes == 0
    with pytest.raises(CudaFailed, match=f"no control group {node.one}"):
        node.cuda(node.one)


def test_an_older_driver_holds_nobody_to_anything(node: Node) -> None:
    node.gpu.set_memory_limits(node.one, 0, GIB)
    node.machine.driver_gone()
    node.machine.driver_back("580.95.05")
    node.cuda(node.one).allocate(2 * GIB)


def test_nvml_lists_a_client_whose_process_is_known_until_it_ends(node: Node) -> None:
    client = node.machine.cuda(0, node.one, process_id=4711)
    node.cuda(node.one)
    assert node.gpu.process_ids() == (4711,)
    client.end()
    assert node.gpu.process_ids() == ()


def test_a_client_frees_no_more_than_it_has(node: Node) -> None:
    client = node.cuda(node.one)
    client.allocate(5)
    with pytest.raises(ValueError, match="it has 5 bytes"):
        client.free(6)
    for call in (client.allocate, client.free):
        with pytest.raises(ValueError, match="-1"):
            call(-1)
    assert client.allocated_bytes == 5


def test_another_process_sees_limits_and_allocations(tmp_path: Path) -> None:
    flag = f"fake:l4-quad@{tmp_path / 'state.json'}"
    node = Node(FakeMachine.open(flag), tmp_path / "cgroups")
    node.gpu.set_memory_limits(node.one, 0, GIB)
    program = (
        "from fakegpu.machine.fake_machine import FakeMachine\n"
        "from fakegpu.memory.cuda import OutOfMemory\n"
        f"client = FakeMachine.open({flag!r}).cuda(0, {node.one!r})\n"
        "taken = 0\n"
        "while True:\n"
        f"    try:\n        client.allocate({GIB // 4})\n"
        "    except OutOfMemory:\n        break\n"
        f"    taken += {GIB // 4}\n"
        "print(taken)\n"
    )
    commands = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) for _ in range(3)]
    taken = [int(command.communicate(timeout=60)[0]) for command in commands]
    assert sum(taken) == GIB
    assert node.gpu.memory_limits(node.one).used_bytes == GIB
    node.groups.remove("/pod/one")
    node.cuda(node.two).allocate(GPU_BYTES)
