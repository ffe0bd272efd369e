"""The inventory is looked at again and again, and nothing is offered that was not seen."""

import pytest

from controller.publish.restore_missing import recalled
from tests.controller.mig_node import BALANCED, HIDDEN, WHOLE
from tests.controller.observed import Observed
from tests.gpus import TAINT_BLOCKED, BlockedPlacement, Device, GpuPolicy, Guard, NodeConfig, NodeState, Rule

FIRST = "gpu-0000-1b-00-0"
NO_DRIVER = ("gpu.nvidia.com/driver-not-loaded", "NoSchedule")


@pytest.fixture
def node(guard: Guard) -> Observed:
    return Observed(guard)


def one_rule(form: GpuPolicy, when: str | None = None) -> NodeConfig:
    return NodeConfig((Rule(when, form),))


def taints(devices: tuple[Device, ...]) -> set[tuple[str, str]]:
    return {(taint.key, taint.effect) for device in devices for taint in device.taints}


def test_nothing_is_offered_without_a_driver_and_everything_once_it_is_there(node: Observed) -> None:
    node.machine.driver_gone()
    node.check()
    node.check()
    assert [(one.devices, one.knows_nothing) for one in node.all] == [((), True)] * 2

    node.machine.driver_back()
    node.check()

    assert [len(devices) for devices in node.offered] == [0, 0, 8]


def test_what_was_offered_stays_with_a_taint_while_the_driver_is_away(node: Observed) -> None:
    node.check()
    node.machine.driver_gone()

    node.check()
    node.check()
    node.machine.driver_back()
    node.check()

    before, *away, after = node.all
    published = [recalled(one, before.devices, before.counter_sets).devices for one in away]
    assert [[device.name for device in devices] for devices in published] == [
        [device.name for device in before.devices]
    ] * 2
    assert [taints(devices) for devices in published] == [{NO_DRIVER}] * 2
    assert after == before


def test_the_rules_of_the_node_decide_and_are_asked_at_each_look(node: Observed) -> None:
    node.rules = one_rule(HIDDEN, "gpu.index > 5")
    node.check()
    node.rules = one_rule(HIDDEN, "gpu.index > 6")
    node.check()

    assert [len(devices) for devices in node.offered] == [6, 7]


def test_nothing_is_offered_before_the_plugin_has_told_what_it_holds(guard: Guard) -> None:
    node = Observed(guard, state=None)
    node.rules = one_rule(BALANCED)
    node.check()
    assert node.all == []

    node.observer.plugin_reports(NodeState((FIRST,)))

    assert node.held == [frozenset({FIRST})]
    assert {d.pci for d in node.offered[0] if d.taints} == {node.machine.pci(0)}


def test_what_the_plugin_tells_counts_at_once_and_at_later_looks(node: Observed) -> None:
    node.check()
    block = BlockedPlacement(node.machine.pci(0), None, "in-use", "")
    node.observer.plugin_reports(NodeState((), (block,)))
    node.check()
    node.observer.plugin_reports(NodeState())

    assert [taints(devices) for devices in node.offered] == [
        set(),
        {(TAINT_BLOCKED, "NoSchedule")},
        {(TAINT_BLOCKED, "NoSchedule")},
        set(),
    ]


def test_a_gpu_that_is_withheld_is_an_event_once_and_again_when_the_reason_changes(guard: Guard) -> None:
    node = Observed(guard, "dgx-a100")
    node.rules = one_rule(BALANCED, "gpu.index == 0")
    node.check()
    node.check()

    [(kind, reason, message)] = node.events.posted
    assert (kind, reason) == ("Warning", "GpuWithheld")
    assert str(node.machine.pci(0)) in message
    assert "reset" in message

    node.rules = one_rule(HIDDEN, "gpu.index == 0")
    node.check()
    node.rules = one_rule(WHOLE)
    node.check()
    node.rules = one_rule(HIDDEN, "gpu.index == 0")
    node.check()
    assert [kind for kind, _, _ in node.events.posted] == ["Warning", "Normal", "Normal"]


def test_gpus_that_hang_or_are_lost_are_tainted_but_not_one_that_the_plugin_works_on(node: Observed) -> None:
    node.check()
    busy, other, lost = (node.machine.pci(index) for index in range(3))
    node.machine.hang("name", gpu=0)
    node.machine.hang("name", gpu=1)
    node.machine.lose(2)
    node.observer.plugin_reports(NodeState(busy=(busy,)))

    node.check()
    node.observer.plugin_reports(NodeState())
    assert {device.pci for device in node.offered[-1] if device.taints} == {other, lost}
    assert node.metrics.registry.get_sample_value("gpu_dra_nvml_failures_total", {"reason": "lost"})

    node.check()
    assert {device.pci for device in node.offered[-1] if device.taints} == {busy, other, lost}
    node.machine.heal()
