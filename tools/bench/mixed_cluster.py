"""The cluster and the pods with which the allocator is measured: 5,000 nodes with all forms, 40,000 pods.

Nodes offer whole GPUs, layouts, dynamic MIG with counters, shares by number and by memory, and all tiers;
some are tainted. Pods want one GPU or several with a constraint, partitions by class and by profile, shares
with and without amounts, extended resources, alternatives, and what no node can give.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuctl.plan.planned import plan_node
from gpuctl.simulate.cluster import SimulatedCluster, load_classes, planned_cluster
from gpuctl.simulate.workload import PodGroup
from kubernetes_rules.pod_claims import extended_requests
from kubernetes_rules.taints import tainted_slices

Object = dict[str, Any]

_EXAMPLES = Path(__file__).resolve().parents[2] / "deploy" / "examples" / "node-config"
_DYNAMIC = "version: v1\nrules:\n- mig: {dynamic: {profiles: [1g, 2g, 3g]}}\n"
_TAINT = {"spec": {"deviceSelector": {}, "taint": {"key": "service", "effect": "NoSchedule"}}}

# The machine, the node configuration ("" is whole GPUs), and how many of a thousand nodes are such.
_NODES = (
    ("hgx-h100", "", 300),
    ("hgx-h100", "mig-layouts.yaml", 140),
    ("hgx-h200", "mig-layouts.yaml", 60),
    ("hgx-h100", "dynamic", 140),
    ("hgx-h100", "all-tiers.yaml", 40),
    ("a30-quad", "time-slicing.yaml", 100),
    ("l40s-octo", "mps.yaml", 60),
    ("l40s-octo", "memory-shares.yaml", 100),
    ("dgx1-v100", "", 40),
    ("hgx-h100", "tainted", 20),
)


def mixed_cluster(nodes: int) -> SimulatedCluster:
    """A cluster of about so many nodes."""
    published = []
    with tempfile.TemporaryDirectory() as folder:
        dynamic = Path(folder) / "dynamic.yaml"
        dynamic.write_text(_DYNAMIC)
        for machine, config, per_thousand in _NODES:
            file = {"": None, "tainted": None, "dynamic": dynamic}.get(config, _EXAMPLES / config)
            slices: Sequence[Object] = plan_node(machine, "node", file).slices
            if config == "tainted":
                slices = tainted_slices(slices, [_TAINT])
            published.append((nodes * per_thousand // 1000, slices))
    return planned_cluster(published, load_classes(()))


def mixed_pods(pods: int) -> list[PodGroup]:
    """About so many pods, which 1/8 as many of these nodes can almost serve."""
    resource = "deviceclass.resource.kubernetes.io/large"
    container = {"name": "main", "resources": {"requests": {resource: "2"}}}
    extended = extended_requests({"spec": {"containers": [container]}}, {resource: "large"}).requests
    together, apart = ({f"{word}Attribute": "gpu.nvidia.com/numaNode"} for word in ("match", "distinct"))
    either = {
        "name": "gpus",
        "firstAvailable": [
            {"name": "large", "deviceClassName": "mig-large", "selectors": _profile("4g.40gb")},
            {"name": "medium", "deviceClassName": "mig-medium"},
            {"name": "share", "deviceClassName": "shared-mps"},
        ],
    }
    # How many of a thousand pods are such, and their claims.
    groups: dict[str, tuple[int, Sequence[Object]]] = {
        "whole": (125, [_claim(_request("gpu.nvidia.com"))]),
        "island": (20, [_claim(_request("large", 4), constraints=[together])]),
        "extended": (20, [_claim(*extended)]),
        "small": (300, [_claim(_request("mig-small"))]),
        "large-part": (75, [_claim(_request("mig-large"))]),
        "profile": (62, [_claim(_request("mig.nvidia.com", selectors=_profile("2g.20gb")))]),
        "time-sliced": (125, [_claim(_request("shared-timesliced"))]),
        "mps": (63, [_claim(_request("shared-mps"))]),
        "memory": (125, [_claim(_request("shared-mps", capacity={"requests": {"memory": "10Gi"}}))]),
        "either": (50, [_claim(either)]),
        "two-claims": (10, [_claim(_request("gpu.nvidia.com", 2)), _claim(_request("mig-small"))]),
        "too-many": (13, [_claim(_request("gpu.nvidia.com", 9))]),
        "impossible": (12, [_claim(_request("large", 3), constraints=[apart])]),
    }
    return [
        PodGroup(name, pods * per_thousand // 1000, tuple(claims))
        for name, (per_thousand, claims) in groups.items()
    ]


def _claim(*requests: Object, **devices: Any) -> Object:
    return {"devices": {"requests": list(requests), **devices}}


def _request(device_class: str, count: int = 1, **more: Any) -> Object:
    return {"name": "gpus", "exactly": {"deviceClassName": device_class, "count": count, **more}}


def _profile(name: str) -> list[Object]:
    return [{"cel": {"expression": f'device.attributes["gpu.nvidia.com"].profile == "{name}"'}}]
