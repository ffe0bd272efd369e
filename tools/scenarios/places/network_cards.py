"""Another DRA driver on the same node, which hands out network cards that do nothing.

``begin_cards`` publishes the cards and starts the driver. Run as a program, this module is the driver.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from driver.claims.allocation import read_claim
from driver.kube.client import KubeClient
from driver.kube.paths import claim_path
from driver.process.metrics import Metrics
from driver.process.service import Service
from envtest.client import paths
from envtest.client.errors import ClusterError
from envtest.client.shipped import PACKAGE_ROOT, python_command, python_environment
from envtest.cluster import Cluster
from fakegpu.machine.fake_machine import FakeMachine
from gpuctl.demo.driver_node import DriverNode
from kubeletplugin.kubelet.node_state import NodeStateBoard
from kubeletplugin.kubelet.plugin_sockets import READY_PART, open_sockets
from kubeletplugin.kubelet.wire.claim_call import Call, ClaimRef, PreparedDevice
from kubeletplugin.kubelet.wire.health_board import HealthBoard

DRIVER = "nic.example.com"
"""The name of the driver and of its class."""
POOL = "node-0-nics"
_PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
_GPUS_FOR_A_CARD = 4

Cards = Mapping[str, Mapping[str, Any]]
"""The cards by name, each with its attributes."""


def begin_cards(_cluster: Cluster, drivers: Sequence[DriverNode], cleanup: ExitStack) -> None:
    """Publish a card for every fourth GPU of the first node, and serve the cards until the stack ends."""
    cleanup.enter_context(cards_on(drivers[0], cards_beside(drivers[0].machine)))


def cards_beside(machine: FakeMachine) -> Cards:
    """A card for every four GPUs of a machine, on the PCIe root of the second of the four."""
    roots = [slot.pcie_root for slot in machine.spec.slots]
    return {
        f"eth{number}": {_PCIE_ROOT: {"string": root}}
        for number, root in enumerate(roots[1::_GPUS_FOR_A_CARD])
    }


@contextmanager
def cards_on(driver: DriverNode, cards: Cards) -> Iterator[None]:
    """Publish these cards on a node and run their driver while the context lasts."""
    cluster, node = driver.cluster, driver.node
    folders = (str(node.plugins_dir), str(node.registry_dir), str(cluster.admin))
    command = python_command("-m", "tools.scenarios.places.network_cards", *folders)
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
    """The DeviceClass and the ResourceSlice of the cards."""
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


class _NicClaims:
    """Prepares the cards of a claim, which need no CDI device."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    def prepare(self, claim: ClaimRef, _call: Call) -> tuple[PreparedDevice, ...]:
        """The cards of a claim, without CDI devices: containers need nothing to use them."""
        stored = self._client.get(claim_path(claim.namespace, claim.name))
        return tuple(
            PreparedDevice((one.request,), one.pool, one.device, ())
            for one in read_claim(stored, claim.uid, DRIVER).devices
        )

    def unprepare(self, _claim: ClaimRef, _call: Call) -> None:
        """Prepare did nothing, so there is nothing to undo."""


def serve(plugins_dir: Path, registry_dir: Path, kubeconfig: Path) -> None:
    """Serve until SIGTERM."""
    service = Service()
    sockets = open_sockets(
        service,
        driver=DRIVER,
        service_socket=plugins_dir / DRIVER / "dra.sock",
        registration_socket=registry_dir / f"{DRIVER}-reg.sock",
        claims=_NicClaims(KubeClient.connect(kubeconfig, user_agent=DRIVER)),
        board=HealthBoard(),
        state=NodeStateBoard(),
        metrics=Metrics(),
    )
    sockets.serving.up(READY_PART)
    service.run()


if __name__ == "__main__":
    serve(*map(Path, sys.argv[1:]))
