"""A look tells whether the NVIDIA driver can hold containers to memory of a GPU, and asks a new one anew."""

from pathlib import Path

import pytest

from tests.driver.hardware.looked_at import Node, reasons
from tests.driver.mig_machines import device

R615 = "615.71.09"


@pytest.fixture
def four(tmp_path: Path) -> Node:
    """Four L4 with a driver that has limits."""
    return Node("l4-quad", tmp_path)


def limits(node: Node) -> list[bool | None]:
    """What each GPU says."""
    return [gpu.memory_limits for gpu in node.discovery.snapshot().gpus]


def test_a_gpu_with_such_a_driver_on_a_node_with_cgroup_v2_has_limits(four: Node) -> None:
    inventory = four.discovery.snapshot()
    assert inventory.cgroup_v2
    assert [gpu.memory_limits for gpu in inventory.gpus] == [True] * 4
    assert reasons(inventory) == {}


def test_on_a_node_with_cgroup_v1_nobody_is_asked(four: Node) -> None:
    (four.sysfs / "fs/cgroup/cgroup.controllers").unlink()
    four.machine.fail("memory_limits")
    inventory = four.discovery.snapshot()
    assert not inventory.cgroup_v2
    assert [gpu.memory_limits for gpu in inventory.gpus] == [None] * 4
    assert reasons(inventory) == {}


def test_what_another_driver_said_does_not_count_while_the_call_fails(four: Node) -> None:
    assert limits(four) == [True] * 4
    four.machine.driver_gone()
    four.machine.driver_back("616.10.01")
    four.machine.fail("memory_limits", gpu=1)
    inventory = four.discovery.snapshot()
    assert [gpu.memory_limits for gpu in inventory.gpus] == [True, None, True, True]
    assert inventory.gpus[1].unanswered == {"memory_limits"}


def test_a_gpu_in_mig_mode_keeps_what_it_said_before(node: Node) -> None:
    node.machine.driver_gone()
    node.machine.driver_back(R615)
    assert set(limits(node)) == {True}
    device(node.machine).set_mig_mode(enabled=True)
    assert set(limits(node)) == {True}


def test_a_no_of_a_gpu_that_was_in_mig_mode_from_the_beginning_says_nothing(node: Node) -> None:
    node.machine.driver_gone()
    node.machine.driver_back(R615)
    first = device(node.machine)
    first.set_mig_mode(enabled=True)
    gpus = node.discovery.snapshot().gpus
    assert (gpus[0].memory_limits, gpus[1].memory_limits) == (None, True)
    assert "memory_limits" not in gpus[0].unanswered
    first.set_mig_mode(enabled=False)
    assert set(limits(node)) == {True}


def test_limits_that_the_root_has_tell_it_too(four: Node, tmp_path: Path) -> None:
    four.machine.pretend_cgroups(tmp_path / "groups")
    device(four.machine).set_memory_limits("/sys/fs/cgroup", 0, 2**30)
    assert limits(four) == [True] * 4
