"""A device plugin that hands out the node's GPUs as well is seen in the Node: no GPU is given twice."""

from typing import Any

import pytest

from controller.observe.device_plugin import Consequence, DevicePlugin, offered_by_device_plugin
from controller.observe.observer import BESIDE_DEVICE_PLUGIN
from tests.controller.observed import Observed
from tests.gpus import TAINT_DEVICE_PLUGIN, Guard


def node_with(*resources: str) -> dict[str, Any]:
    return {"status": {"capacity": dict.fromkeys(resources, "8")}}


@pytest.mark.parametrize(
    ("resource", "amount", "offered"),
    [
        ("nvidia.com/gpu", "8", ("gpu",)),
        ("nvidia.com/gpu.shared", "32", ("gpu.shared",)),
        ("nvidia.com/mig-1g.10gb", "7", ("mig-1g.10gb",)),
        ("nvidia.com/mig-1g.10gb.shared", "28", ("mig-1g.10gb.shared",)),
        ("nvidia.com/gpu", "0", ()),
        ("nvidia.com/hostdev", "4", ()),
        ("nvidia.com/GH100_H100", "4", ()),
        ("amd.com/gpu", "8", ()),
        ("cpu", "8", ()),
    ],
)
def test_what_is_offered_of_gpus_is_in_the_capacity(
    resource: str, amount: str, offered: tuple[str, ...]
) -> None:
    assert offered_by_device_plugin({"status": {"capacity": {resource: amount}}}) == offered
    assert offered_by_device_plugin({}) == offered_by_device_plugin({"status": {"capacity": None}}) == ()


class Scene(Observed):
    def __init__(self, guard: Guard, consequence: Consequence) -> None:
        super().__init__(guard, withholds=consequence == "withhold")
        self.device_plugin = DevicePlugin(self.events, self.observer.device_plugin_offers, consequence)

    def count(self) -> int:
        return len(self.offered[-1])

    def taints(self) -> set[tuple[str, str, str]]:
        devices = self.offered[-1]
        assert len({device.taints for device in devices}) == 1
        return {(taint.key, taint.value, taint.effect) for taint in devices[0].taints}


def test_all_devices_are_tainted_while_it_offers_gpus_and_people_are_told_once(guard: Guard) -> None:
    scene = Scene(guard, "taint")
    both = node_with("nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "cpu")
    gone = {"status": {"capacity": {"nvidia.com/gpu": "0"}}}
    scene.check()
    for node, value in ((gone, ""), (both, "gpu"), (both, "gpu"), (gone, ""), ({}, "")):
        scene.device_plugin.seen(node)
        assert scene.taints() == ({(TAINT_DEVICE_PLUGIN, value, "NoSchedule")} if value else set())
        assert scene.count() == 8

    came, went = scene.events.posted
    assert came[:2] == ("Warning", "DevicePluginBeside")
    assert "nvidia.com/gpu, nvidia.com/mig-1g.10gb" in came[2]
    assert "offered with a taint until it is gone" in came[2]
    assert went[:2] == ("Normal", "DevicePluginGone")


def test_nothing_is_offered_where_that_is_asked_for(guard: Guard) -> None:
    scene = Scene(guard, "withhold")
    scene.check()
    scene.device_plugin.seen(node_with("nvidia.com/gpu"))
    assert scene.count() == 0
    assert [held.reason for held in scene.all[-1].withheld] == [BESIDE_DEVICE_PLUGIN] * 8
    scene.device_plugin.seen({"status": {"capacity": {}}})
    assert scene.count() == 8
    assert scene.all[-1].withheld == ()
