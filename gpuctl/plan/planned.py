"""Computes what a node would publish from a machine's description, without a cluster and without a GPU.

It takes the same steps as the controller: NVML, sysfs, inventory, offers, slices.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.publish.slice_diff import generate_name
from driver.devices.names import DRIVER_NAME, checked_node_name, pool_name
from driver.hardware.gpu import Inventory
from driver.hardware.inventory import Discovery
from driver.nvml.deadline import Guard
from driver.policy.config import load_config
from driver.policy.offers import Withheld, tainted_offers
from driver.policy.rules import NodeConfig
from driver.slices.specs import lay_out
from fakegpu.driver_files.driver_root import build_sysfs
from fakegpu.machine.fake_machine import FakeMachine

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node's inventory, the slices that it would publish, and what it would not publish and why.

    The keys of ``withheld`` are ``0000:8a:00.0`` for a GPU, ``0000:8a:00.0 partitions`` or ``… whole`` if
    only that form of it is not published, and the name of a device that would break a limit of the API.
    """

    inventory: Inventory
    slices: tuple[Object, ...]
    withheld: dict[str, str]

    def as_list(self) -> Object:
        """The slices as a List that kubectl applies."""
        return {"apiVersion": "v1", "kind": "List", "items": list(self.slices)}


def plan_node(
    machine: str, node: str, config: Path | None, labels: Mapping[str, str] | None = None
) -> PlannedNode:
    """What the node would publish; ``machine`` is a shipped machine's name or a machine file.

    ``labels`` are those of the node, which have to be known if the configuration has pools. Raises
    ConfigError for a machine, a node's name or a node configuration that cannot be used.
    """
    checked_node_name(node)
    rules = load_config(config, labels) if config else None
    fake = FakeMachine.open(machine)
    with tempfile.TemporaryDirectory(prefix="gpuctl-plan-") as folder:
        guard = Guard()
        discovery = Discovery(fake.nvml(), build_sysfs(Path(folder), fake), guard, fake.fabric.manager())
        try:
            inventory = discovery.snapshot()
        finally:
            discovery.close()
            guard.close()  # it has a thread for each GPU, and a simulation plans many machines
    return plan_inventory(inventory, node, rules)


def plan_inventory(inventory: Inventory, node: str, rules: NodeConfig | None) -> PlannedNode:
    """What a node with these GPUs would publish, with the taints of what is wrong with them."""
    offers = tainted_offers(inventory, rules)
    layout = lay_out(
        offers.devices,
        pool=pool_name(node),
        node=node,
        counter_sets=offers.counter_sets,
    )
    slices = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            # The controller sends this as generateName, and the API server adds a random end.
            "metadata": {"name": generate_name(index, DRIVER_NAME, node).removesuffix("-")},
            "spec": {**spec, "pool": {**spec["pool"], "generation": 1}},
        }
        for index, spec in enumerate(layout.specs)
    ]
    withheld = {_withheld_name(held): held.reason for held in offers.withheld}
    withheld |= {held.device.name: "; ".join(held.reasons) for held in layout.rejected}
    return PlannedNode(inventory, tuple(slices), withheld)


def _withheld_name(held: Withheld) -> str:
    return str(held.pci) if held.part == "gpu" else f"{held.pci} {held.part}"
