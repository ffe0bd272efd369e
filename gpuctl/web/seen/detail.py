"""One node in full: each GPU with all of its forms, who has them, and what keeps claims away."""

from __future__ import annotations

from dataclasses import dataclass

from driver.devices.names import DRIVER_NAME
from gpuctl.fleet.gpus import GpuState
from gpuctl.fleet.holders import allocated
from gpuctl.fleet.nodes import DeviceState, NodeView, device_states
from gpuctl.fleet.published import read_node
from gpuctl.web.seen.view import View
from kubernetes_rules.errors import RuleError


@dataclass(frozen=True, slots=True)
class GpuDetail:
    """A GPU with its forms, held ones first."""

    gpu: GpuState
    forms: tuple[DeviceState, ...]


@dataclass(frozen=True, slots=True)
class NodeDetail:
    """A node with its GPUs; none where its slices cannot be read, as the view says."""

    node: NodeView
    gpus: tuple[GpuDetail, ...]


_RANK = {"held": 0, "free": 1, "unavailable": 2, "excluded": 3}


def node_detail(view: View, name: str) -> NodeDetail | None:
    """The node in full, None where it publishes nothing."""
    node = view.nodes.get(name)
    if node is None:
        return None
    slices = [
        one
        for one in view.objects.slices
        if one["spec"].get("nodeName") == name and one["spec"].get("driver") == DRIVER_NAME
    ]
    try:
        read = read_node(name, slices)
        pools = read.pool_names
        claims = [one for one in view.objects.claims if any(held.pool in pools for held in allocated(one))]
        devices = device_states(read, claims)
    except RuleError:
        return NodeDetail(node, ())
    by_gpu: dict[str, list[DeviceState]] = {}
    for one in sorted(devices, key=lambda one: _RANK[one.state]):
        for part in one.device.lies_on:
            by_gpu.setdefault(part.gpu, []).append(one)
    return NodeDetail(node, tuple(GpuDetail(gpu, tuple(by_gpu.get(gpu.device, ()))) for gpu in node.gpus))
