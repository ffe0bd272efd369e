"""CUDA clients have what their control group may have, and what the GPU has, and not a byte more."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.errors import ConfigError
from driver.nvml.api import NoMemoryLimits
from fakegpu.machine.cgroups import FakeCgroups
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.memory.cuda import CudaFailed, FakeCudaClient
from fakegpu.nvml.fake_nvml import FakeDevice

GIB = 2**30


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
