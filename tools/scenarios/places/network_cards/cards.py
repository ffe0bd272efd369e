"""Network cards on a node: their class and slice in the cluster, and their driver's process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from envtest.client import paths
from envtest.client.errors import ClusterError
from envtest.client.shipped import PACKAGE_ROOT, python_command, python_environment
from envtest.cluster import Cluster
from fakegpu.machine.fake_machine import FakeMachine
from gpuctl.demo.driver_node import DriverNode
from tools.scenarios.places.network_cards.name import DRIVER

POOL = "node-0-nics"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
_GPUS_FOR_A_CARD = 4
_PROGRAM = "tools.scenarios.places.network_cards.driver"

Cards = Mapping[str, Mapping[str, Any]]
"""The cards by name, each with its attributes."""


def begin_cards(_cluster: Cluster, drivers: Sequence[DriverNode], cleanup: ExitStack) -> None:
    """Have the first node publish a card beside every fourth GPU, and serve them until the stack ends."""
    cleanup.enter_context(cards_on(drivers[0], cards_beside(drivers[0].machine)))


def cards_beside(machine: FakeMachine) -> Cards:
    """A card for every four GPUs of a machine, on the PCIe root of the second of the four."""
    roots = [slot.pcie_root for slot in machine.spec.slots]
    return {
        f"eth{number}": {PCIE_ROOT: {"string": root}}
        for number, root in enumerate(roots[1::_GPUS_FOR_A_CARD])
    }


@contextmanager
def cards_on(driver: DriverNode, cards: Cards) -> Iterator[None]:
    """Have the node publish these cards and their driver serve them; afterwards all of it is gone."""
    cluster, node = driver.cluster, driver.node
    folders = (str(node.plugins_dir), str(node.registry_dir), str(cluster.admin))
    command = python_command("-m", _PROGRAM, *folders)
    other = cluster.processes.start("other-driver", command, python_environment(PACKAGE_ROOT))
    try:
        driver.wait_serving(node.plugins_dir / DRIVER / "dra.sock")
        cluster.api.apply(objects_of(cards, node.name))
        yield
    finally:
        cluster.api.delete(paths.resource_slice(POOL))
        code = other.stop()
    if code != 0:
        raise ClusterError(f"the driver of the network cards ended with {code}")


def objects_of(cards: Cards, node: str) -> list[dict[str, Any]]:
    """The driver's class and slice: the cards by name, with their attributes."""
    api = "resource.k8s.io/v1"
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": POOL, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": name, "attributes": dict(attributes)} for name, attributes in cards.items()],
    }
    return [
        {
            "apiVersion": api,
            "kind": "DeviceClass",
            "metadata": {"name": DRIVER},
            "spec": {"selectors": [selector]},
        },
        {"apiVersion": api, "kind": "ResourceSlice", "metadata": {"name": POOL}, "spec": spec},
    ]
