"""The first and the last partition of a GPU rename no island, whether MIG mode ends its NVLinks or not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.publish.changeover import Changeover, Known, Seen
from controller.publish.island_names import GROUPS
from driver.hardware.inventory import Discovery
from driver.kube.backoff import Backoff
from driver.policy.offers import node_offers
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.machine.spec import load_machine
from fakegpu.machine.state import MachineState, MemoryStore
from tests.controller.mig_node import POOL, cut, slices
from tests.controller.timeless_guard import TimelessGuard

Groups = dict[str, tuple[object, ...]]


class Node:
    """A machine and its controller."""

    def __init__(self, machine: str, *, links_end: bool) -> None:
        spec = replace(load_machine(machine), links_end_with_mig=links_end)
        self.machine = FakeMachine(spec, MemoryStore(MachineState.fresh(spec)))
        self.stored: list[dict[str, Any]] = []
        self.restart()

    def restart(self) -> None:
        """Begin with a controller that knows nothing."""
        self._discovery = Discovery(self.machine.nvml(), Path("/no-sysfs"), TimelessGuard())
        self._changeover = Changeover(POOL, frozenset, 0.0, Backoff(0.0, 0.0))
        self._known = Known()

    def look(self) -> Groups:
        """Look and publish; the groups of each whole GPU."""
        wanted = node_offers(self._discovery.snapshot())
        for _ in range(3):
            self._known = self._changeover.next_known(self._known, Seen(wanted, frozenset(), self.stored))
            self.stored = slices(self._known.offers)
        return {
            device.name: tuple(device.attributes.get(attribute) for attribute in GROUPS)
            for device in self._known.offers.devices
            if device.attributes["type"] == "gpu"
        }


@pytest.mark.parametrize("links_end", [False, True])
@pytest.mark.parametrize("machine", ["hgx-h100", "a30-quad", "dgx-a100"])
@pytest.mark.parametrize("loses", ["nothing", "what the controller knew", "its slices"])
def test_no_island_is_renamed_by_a_gpu_that_is_cut(machine: str, loses: str, links_end: bool) -> None:
    node = Node(machine, links_end=links_end)
    before = node.look()

    _turn_on(node)
    during = node.look()
    assert during.keys() < before.keys()
    assert {name: groups for name, groups in during.items() if None not in groups}.items() <= before.items()

    if loses == "what the controller knew":
        node.restart()
    elif loses == "its slices":
        node.stored = []
    assert node.look() == during

    _set_mode(node, enabled=False)
    if node.machine.spec.product.mig_needs_reset:
        node.machine.reset(0)
    assert node.look() == before


def _turn_on(node: Node) -> None:
    if node.machine.spec.product.mig_needs_reset:
        _set_mode(node, enabled=True)
        node.machine.reset(0)
    cut(node.machine, 0, slices=1, start=0)


def _set_mode(node: Node, *, enabled: bool) -> None:
    nvml = node.machine.nvml()
    nvml.init()
    nvml.device_by_index(0).set_mig_mode(enabled)


def test_links_that_end_with_mig_mode_end_for_both_ends() -> None:
    node = Node("a30-quad", links_end=True)
    _turn_on(node)
    nvml = node.machine.nvml()
    nvml.init()
    assert [len(nvml.device_by_index(gpu).nvlinks()) for gpu in range(4)] == [0, 0, 4, 4]
