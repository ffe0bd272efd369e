"""Slices and claims of a node that is cut, shared and held, for tests of what shows them."""

from pathlib import Path
from typing import Any

from tests.clusters import Object, plan_node

FIRST, SECOND, THIRD = "gpu-0000-1b-00-0", "gpu-0000-43-00-0", "gpu-0000-52-00-0"
_SINCE = {"timeAdded": "2026-01-02T03:04:05Z"}
XID = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule", **_SINCE}
CONFIG = """
version: v1
rules:
- when: gpu.index == 0
  mig: dynamic
- when: gpu.index == 2
  shared: {strategy: MPS, shares: 4}
"""


def published(folder: Path, node: str = "node-a", machine: str = "hgx-h100") -> list[Object]:
    """The slices of a node whose GPU 0 can be cut and whose GPU 2 is shared."""
    config = folder / "node.yaml"
    config.write_text(CONFIG)
    return list(plan_node(machine, node, config).slices)


def claim(name: str, device: str, *, node: str = "node-a", pods: tuple[str, ...] = (), **more: Any) -> Object:
    """An allocated claim of the namespace ``team``, for the class ``large``."""
    place = {"driver": "gpu.nvidia.com", "pool": f"{node}/gpu.nvidia.com", "device": device}
    return {
        "metadata": {"namespace": "team", "name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "large"}}]}},
        "status": {
            "allocation": {"devices": {"results": [{"request": "gpu", **place, **more}]}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods],
        },
    }


def devices(slices: list[Object], gpu: str) -> list[Object]:
    """The devices of a GPU, to be changed."""
    return [
        device
        for one in slices
        for device in one["spec"].get("devices") or ()
        if str(device["name"]).startswith(gpu)
    ]
