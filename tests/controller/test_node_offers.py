"""The inventory is looked at again and again, and nothing is offered that was not seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controller.node_offers import NodeOffers
from driver.config import NodeConfig, Rule
from driver.errors import NvmlError
from driver.inventory import Discovery
from driver.metrics import Metrics
from driver.nvml.deadline import Guard
from driver.nvml.fake_machine import FakeMachine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from driver.model import Device


class Node:
    """A fake machine and what its offers were, look by look."""

    def __init__(self, guard: Guard, config: NodeConfig | None = None) -> None:
        self.machine = FakeMachine.open("hgx-h100")
        self.metrics = Metrics()
        self.offered: list[tuple[Device, ...]] = []
        discovery = Discovery(self.machine.nvml(), Path("/no-sysfs"), guard)
        self.offers = NodeOffers(discovery, config, self.metrics, self.offered.append)


@pytest.fixture
def guard() -> Iterator[Guard]:
    one = Guard(0.5)
    yield one
    one.close()


def test_all_gpus_of_an_hgx_are_offered(guard: Guard) -> None:
    node = Node(guard)

    node.offers.check()

    [devices] = node.offered
    assert len(devices) == 8
    assert [device.attributes["index"] for device in devices] == list(range(8))


def test_nothing_is_offered_without_a_driver_and_everything_once_it_is_there(guard: Guard) -> None:
    node = Node(guard)
    node.machine.driver_gone()
    node.offers.check()
    node.offers.check()
    assert node.offered == []

    node.machine.driver_back()
    node.offers.check()

    assert [len(devices) for devices in node.offered] == [8]


def test_what_was_offered_stays_with_a_taint_while_the_driver_is_away(guard: Guard) -> None:
    node = Node(guard)
    node.offers.check()
    node.machine.driver_gone()

    node.offers.check()
    node.offers.check()
    node.machine.driver_back()
    node.offers.check()

    before, *away, after = node.offered
    assert [[device.name for device in devices] for devices in away] == [[d.name for d in before]] * 2
    taints = {(t.key, t.effect) for devices in away for device in devices for t in device.taints}
    assert taints == {("gpu.nvidia.com/driver-not-loaded", "NoSchedule")}
    assert after == before


def test_what_was_offered_is_tainted_while_nvml_as_a_whole_hangs(guard: Guard) -> None:
    node = Node(guard)
    node.offers.check()
    node.machine.hang("driver_version")

    with pytest.raises(NvmlError):
        node.offers.check()
    node.machine.heal()

    taints = {(t.key, t.effect) for device in node.offered[-1] for t in device.taints}
    assert taints == {("gpu.nvidia.com/unresponsive", "NoSchedule")}


def test_the_taint_of_a_lost_gpu_comes_and_goes(guard: Guard) -> None:
    node = Node(guard)
    node.offers.check()
    node.machine.lose(2)
    node.offers.check()
    node.machine.restore(2)
    node.offers.check()

    tainted = [[bool(device.taints) for device in devices] for devices in node.offered]
    assert tainted == [[False] * 8, [False, False, True] + [False] * 5, [False] * 8]
    assert node.metrics.registry.get_sample_value("gpu_dra_nvml_failures_total", {"reason": "lost"})


def test_the_rules_of_the_node_decide(guard: Guard) -> None:
    node = Node(guard, NodeConfig((Rule("gpu.index > 5", "hidden"),)))

    node.offers.check()

    assert len(node.offered[0]) == 6
