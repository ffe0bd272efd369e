"""What pictures show: a node as it is published, and claims that the scheduler's rules give its devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from driver.devices.region import Region, overlap
from driver.health.health_rules import HealthRules
from driver.health.incident import Incident, verdicts_of
from driver.health.verdict import taints_of
from driver.kinds.registry import KINDS
from driver.policy.config import load_config
from gpuctl.fleet.cluster import views_of
from gpuctl.fleet.nodes import NodeView
from gpuctl.node.planned import plan_inventory, plan_node
from gpuctl.simulate.device_classes import load_classes
from kubernetes_rules.allocator.allocate import Allocator
from kubernetes_rules.claim_defaults import defaulted_claim_spec

Object = dict[str, Any]

ROOT = Path(__file__).resolve().parents[3]
ALL_TIERS = ROOT / "deploy" / "examples" / "node-config" / "all-tiers.yaml"
NODE = "node-a"


class SceneImpossible(Exception):
    """What a picture was to show does not happen: a pod gets no device."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pod that asks for one device of a class, with a claim of its own name."""

    namespace: str
    name: str
    device_class: str


def published(machine: str, config: Path | None = None, *, gpus: int | None = None) -> tuple[Object, ...]:
    """What a node with this machine publishes; ``gpus`` leaves it so many of its GPUs."""
    planned = plan_node(machine, NODE, config)
    if gpus is None:
        return planned.slices
    inventory = replace(planned.inventory, gpus=planned.inventory.gpus[:gpus])
    return plan_inventory(inventory, NODE, load_config(config) if config else None).slices


def with_xid(slices: Sequence[Object], gpu: int, xid: int) -> tuple[Object, ...]:
    """The same slices after the NVIDIA driver told of an XID of a GPU, which is named by its index."""
    (region,) = {
        one
        for device in _devices(slices)
        if device["attributes"].get("index", {}).get("int") == gpu
        for one in _regions(device)
        if one.span is None
    }
    taints = taints_of(verdicts_of(Incident(region, xid), HealthRules()))
    told = [{"key": one.key, "value": one.value, "effect": one.effect} for one in taints]

    def hit(device: Object) -> Object:
        return {**device, "taints": told} if overlap(_regions(device), (region,)) else device

    return tuple(
        {**one, "spec": {**one["spec"], "devices": [hit(each) for each in one["spec"].get("devices", ())]}}
        for one in slices
    )


def claimed(slices: Sequence[Object], wanted: Sequence[Wanted]) -> NodeView:
    """The node with the devices that the scheduler gives the pods, one after the other.

    Raises SceneImpossible for a pod that gets none.
    """
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {}}}
    allocator = Allocator(slices, load_classes(()), ())
    claims = []
    for one in wanted:
        claim = _claim(one)
        allocated = allocator.allocate(node, [claim])
        if allocated is None:
            raise SceneImpossible(f"{one.name} gets no device of class {one.device_class}")
        claims.append(_with(claim, allocated[0], one))
        allocator.assume(claims[-1])
    (view,) = views_of(slices, claims)
    return view


def _claim(one: Wanted) -> Object:
    request = {"name": "gpu", "exactly": {"deviceClassName": one.device_class}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": one.namespace, "name": one.name, "uid": f"{one.namespace}-{one.name}"},
        "spec": defaulted_claim_spec({"devices": {"requests": [request]}}),
    }


def _with(claim: Object, allocation: Object, one: Wanted) -> Object:
    user = {"resource": "pods", "name": one.name, "uid": f"pod-{one.name}"}
    return {**claim, "status": {"allocation": allocation, "reservedFor": [user]}}


def _devices(slices: Sequence[Object]) -> list[Object]:
    return [device for one in slices for device in one["spec"].get("devices", ())]


def _regions(device: Object) -> tuple[Region, ...]:
    name = KINDS.parse(str(device["name"]))
    return () if name is None else name.regions
