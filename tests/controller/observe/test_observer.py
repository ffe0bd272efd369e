"""The inventory is looked at again and again, and nothing is offered that was not seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controller.health.incident_store import IncidentStore
from controller.observe.observer import Observer
from controller.publish.restore_missing import recalled
from driver.devices.gpu_policy import GpuPolicy, MigOffer
from driver.devices.node_state import BlockedPlacement, NodeState
from driver.devices.taints import TAINT_BLOCKED
from driver.errors import NvmlError
from driver.hardware.inventory import Discovery
from driver.health.verdict import with_verdicts
from driver.nvml.deadline import Guard
from driver.policy.rules import NodeConfig, Rule
from driver.process.metrics import Metrics
from fakegpu.machine.fake_machine import FakeMachine
from tests.controller.heard_events import HeardEvents
from tests.controller.mig_node import BALANCED, WHOLE, cut

if TYPE_CHECKING:
    from collections.abc import Iterator

    from driver.devices.device import Device
    from driver.policy.offers import Offers

FIRST = "gpu-0000-1b-00-0"
NO_DRIVER = ("gpu.nvidia.com/driver-not-loaded", "NoSchedule")


class Node:
    """A fake machine and what its offers were, look by look."""

    def __init__(self, guard: Guard, *, machine: str = "hgx-h100", state: NodeState | None) -> None:
        self.machine = FakeMachine.open(machine)
        self.metrics = Metrics()
        self.events = HeardEvents()
        self.rules: NodeConfig | None = None
        self.all: list[Offers] = []
        self.held: list[frozenset[str]] = []
        discovery = Discovery(self.machine.nvml(), Path("/no-sysfs"), guard)
        self.incidents = IncidentStore()
        self.offers = Observer(
            *(discovery, lambda: self.rules, self.metrics, self.events, self._offered),
            on_check=self.incidents.gpus_checked,
        )
        if state is not None:
            self.offers.plugin_reports(state)

    @property
    def offered(self) -> list[tuple[Device, ...]]:
        return [one.devices for one in self.all]

    def configure(self, form: GpuPolicy, when: str | None = None) -> None:
        self.rules = NodeConfig((Rule(when, form),))

    def _offered(self, offers: Offers, held: frozenset[str], _gpus: object) -> None:
        # As the publisher does.
        devices = with_verdicts(offers.devices, self.incidents.verdicts())
        self.all.append(replace(offers, devices=devices))
        self.held.append(held)


@pytest.fixture
def guard() -> Iterator[Guard]:
    one = Guard(1.0)
    yield one
    one.close()


@pytest.fixture
def node(guard: Guard) -> Node:
    """A node whose plugin holds nothing."""
    return Node(guard, state=NodeState())


def taints(devices: tuple[Device, ...]) -> set[tuple[str, str]]:
    return {(taint.key, taint.effect) for device in devices for taint in device.taints}


def test_nothing_is_offered_without_a_driver_and_everything_once_it_is_there(node: Node) -> None:
    node.machine.driver_gone()
    node.offers.check()
    node.offers.check()
    assert [(one.devices, one.knows_nothing) for one in node.all] == [((), True)] * 2

    node.machine.driver_back()
    node.offers.check()

    assert [len(devices) for devices in node.offered] == [0, 0, 8]


def test_what_was_offered_stays_with_a_taint_while_the_driver_is_away(node: Node) -> None:
    node.offers.check()
    node.machine.driver_gone()

    node.offers.check()
    node.offers.check()
    node.machine.driver_back()
    node.offers.check()

    before, *away, after = node.all
    published = [recalled(one, before.devices, before.counter_sets).devices for one in away]
    assert [[device.name for device in devices] for devices in published] == [
        [device.name for device in before.devices]
    ] * 2
    assert [taints(devices) for devices in published] == [{NO_DRIVER}] * 2
    assert after == before


def test_what_was_offered_is_tainted_while_nvml_as_a_whole_hangs(node: Node) -> None:
    node.offers.check()
    node.machine.hang("driver_version")

    with pytest.raises(NvmlError):
        node.offers.check()
    node.machine.heal()

    assert taints(node.offered[-1]) == {("gpu.nvidia.com/unresponsive", "NoSchedule")}


def test_the_taint_of_a_lost_gpu_comes_and_goes(node: Node) -> None:
    node.offers.check()
    node.machine.lose(2)
    node.offers.check()
    node.machine.restore(2)
    node.offers.check()

    tainted = [[bool(device.taints) for device in devices] for devices in node.offered]
    assert tainted == [[False] * 8, [False, False, True] + [False] * 5, [False] * 8]
    assert node.metrics.registry.get_sample_value("gpu_dra_nvml_failures_total", {"reason": "lost"})


def test_the_rules_of_the_node_decide_and_are_asked_at_each_look(node: Node) -> None:
    node.configure(GpuPolicy("hidden"), "gpu.index > 5")
    node.offers.check()
    node.configure(GpuPolicy("hidden"), "gpu.index > 6")
    node.offers.check()

    assert [len(devices) for devices in node.offered] == [6, 7]


def test_nothing_is_offered_before_the_plugin_has_told_what_it_holds(guard: Guard) -> None:
    node = Node(guard, state=None)
    node.configure(BALANCED)
    node.offers.check()
    assert node.all == []

    node.offers.plugin_reports(NodeState((FIRST,)))

    assert node.held == [frozenset({FIRST})]
    assert {d.pci for d in node.offered[0] if d.taints} == {node.machine.pci(0)}


def test_what_the_plugin_tells_counts_at_once_and_at_later_looks(node: Node) -> None:
    node.offers.check()
    block = BlockedPlacement(node.machine.pci(0), None, "in-use", "")
    node.offers.plugin_reports(NodeState((), (block,)))
    node.offers.check()
    node.offers.plugin_reports(NodeState())

    assert [taints(devices) for devices in node.offered] == [
        set(),
        {(TAINT_BLOCKED, "NoSchedule")},
        {(TAINT_BLOCKED, "NoSchedule")},
        set(),
    ]


def test_a_partition_that_an_admin_makes_is_noticed_with_the_next_look(node: Node) -> None:
    node.offers.check()
    cut(node.machine, 0, slices=3, start=4)
    node.offers.check()

    assert f"{FIRST}-static-3g-40gb-4" in [device.name for device in node.offered[1]]
    assert FIRST not in [device.name for device in node.offered[1]]


def test_a_gpu_that_is_withheld_is_an_event_once_and_again_when_the_reason_changes(guard: Guard) -> None:
    node = Node(guard, machine="dgx-a100", state=NodeState())
    node.configure(BALANCED, "gpu.index == 0")
    node.offers.check()
    node.offers.check()

    [(kind, reason, message)] = node.events.posted
    assert (kind, reason) == ("Warning", "GpuWithheld")
    assert str(node.machine.pci(0)) in message
    assert "reset" in message

    node.configure(GpuPolicy("hidden"), "gpu.index == 0")
    node.offers.check()
    node.configure(WHOLE)
    node.offers.check()
    node.configure(GpuPolicy("hidden"), "gpu.index == 0")
    node.offers.check()
    assert [kind for kind, _, _ in node.events.posted] == ["Warning", "Normal", "Normal"]


def test_a_form_that_is_withheld_beside_another_is_no_event(guard: Guard) -> None:
    node = Node(guard, machine="dgx-a100", state=NodeState())
    node.configure(GpuPolicy(mig=MigOffer("dynamic")))
    node.offers.check()
    assert node.events.posted == []
    assert {held.part for held in node.all[0].withheld} == {"partitions"}


def test_a_gpu_that_the_plugin_is_at_work_on_does_not_hang(node: Node) -> None:
    node.offers.check()
    busy, other = node.machine.pci(0), node.machine.pci(1)
    node.machine.hang("name", gpu=0)
    node.machine.hang("name", gpu=1)
    node.offers.plugin_reports(NodeState(busy=(busy,)))

    node.offers.check()
    node.offers.plugin_reports(NodeState())
    assert {device.pci for device in node.offered[-1] if device.taints} == {other}

    node.offers.check()
    assert {device.pci for device in node.offered[-1] if device.taints} == {busy, other}
    node.machine.heal()
