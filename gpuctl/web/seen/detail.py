"""One node in full: each GPU with all of its forms, who has them, and what keeps claims away."""

from __future__ import annotations

from dataclasses import dataclass

from driver.devices.names import DRIVER_NAME
from gpuctl.status.pool_counters import counters_in
from gpuctl.web.seen.gpus import FormView, GpuView, NodeView, form_views, held_by
from gpuctl.web.seen.holders import holdings
from gpuctl.web.seen.published import published
from gpuctl.web.seen.view import View
from kubernetes_rules.errors import RuleError


@dataclass(frozen=True, slots=True)
class GpuDetail:
    """A GPU with its forms, held ones first."""

    gpu: GpuView
    forms: tuple[FormView, ...]


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
        read = published(name, slices)
        pools = read.pool_names
        claims = [one for one in view.objects.claims if any(held.pool in pools for held in holdings(one))]
        counters = counters_in(read.pools, held_by(claims))
        forms = form_views(read, claims, counters)
    except RuleError:
        return NodeDetail(node, ())
    by_gpu: dict[str, list[FormView]] = {}
    for one in forms:
        by_gpu.setdefault(one.form.gpu, []).append(one)
    return NodeDetail(
        node,
        tuple(
            GpuDetail(gpu, tuple(sorted(by_gpu.get(gpu.gpu, ()), key=lambda one: _RANK[one.state])))
            for gpu in node.gpus
        ),
    )
