"""Nodes that are only objects, with the slices that the driver publishes on a node of each kind."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driver.devices.names import pool_name
from envtest.client import paths
from envtest.client.api import ApiClient
from gpuctl.node.planned import plan_node

Object = dict[str, Any]

MACHINE = "hgx-h100"
CLIENTS = 4
"""More would only take the processor from the API server."""

_READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "an object alone"}
_PLENTY = {"cpu": "1024", "memory": "4096Gi", "pods": "1000"}


@dataclass(frozen=True, slots=True)
class Mode:
    """A way in which the GPUs of a node are offered, and the class that the pods ask for.

    ``configuration`` is the node configuration, None for none.
    """

    name: str
    says: str
    device_class: str
    configuration: str | None = None


MODES = (
    Mode("whole", "whole GPUs", "gpu.nvidia.com"),
    Mode(
        "layout",
        "layout all-1g, any partition",
        "mig.nvidia.com",
        "version: v1\nrules:\n  - mig: {layout: all-1g}\n",
    ),
    Mode(
        "layout-by-need",
        "layout all-1g, mig-small",
        "mig-small",
        "version: v1\nrules:\n  - mig: {layout: all-1g}\n",
    ),
    Mode(
        "dynamic-1g",
        "dynamic, 1g alone",
        "mig.nvidia.com",
        "version: v1\nrules:\n  - mig: {dynamic: {profiles: [1g]}}\n",
    ),
    Mode(
        "dynamic",
        "dynamic, 1g to 4g",
        "mig.nvidia.com",
        "version: v1\nrules:\n  - mig: dynamic\n",
    ),
)


def node_names(count: int) -> list[str]:
    """The names of the nodes."""
    return [f"bench-{index:03d}" for index in range(count)]


def create_all(api: ApiClient, objects: Iterable[Object]) -> None:
    """Create objects over several connections at once; raises what the first that fails raises."""
    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(api.create, objects))


def create_nodes(api: ApiClient, names: Iterable[str]) -> None:
    """Nodes that are ready and take pods. A new node is tainted until somebody finds it ready: done here."""

    def create(name: str) -> None:
        api.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {"capacity": _PLENTY, "allocatable": _PLENTY, "conditions": [_READY]},
            }
        )
        api.patch(paths.node(name), {"spec": {"taints": None}})

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(create, names))


def slices(mode: Mode, names: Iterable[str]) -> list[Object]:
    """The slices of the nodes: those that the driver would publish on one such machine, for each."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        file = Path(folder) / "node.yaml"
        if mode.configuration is not None:
            file.write_text(mode.configuration)
        plan = plan_node(MACHINE, "node", None if mode.configuration is None else file)
    return [
        {
            **one,
            "metadata": {"name": f"{name}-{index}"},
            "spec": {
                **one["spec"],
                "nodeName": name,
                "pool": {**one["spec"]["pool"], "name": pool_name(name)},
            },
        }
        for name in names
        for index, one in enumerate(plan.slices)
    ]
