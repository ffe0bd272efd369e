"""The nodes of the documentation's pictures: what one publishes, and what the scheduler allocates there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from driver.policy.config import load_config
from gpuctl.fleet.cluster import views_of
from gpuctl.fleet.nodes import NodeView
from gpuctl.plan.planned import plan_inventory, plan_node
from gpuctl.simulate.cluster import load_classes
from kubernetes_rules.allocator.allocate import Allocator
from kubernetes_rules.defaults import defaulted_claim_spec

Object = dict[str, Any]

ROOT = Path(__file__).resolve().parents[3]
ALL_TIERS = ROOT / "deploy" / "examples" / "node-config" / "all-tiers.yaml"
NODE = "node-a"
MACHINE = "hgx-h100"
SICK_GPU, XID = 6, 79


class SceneImpossible(Exception):
    """A pod of a picture gets no device."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pod that asks for one device of a class, with a claim of its own name.

    ``capacity`` is what it asks for of a shared device, by the names of capacities.
    """

    namespace: str
    name: str
    device_class: str
    capacity: tuple[tuple[str, str], ...] = ()


PODS = (
    Wanted("research", "train-0", "large"),
    Wanted("research", "train-1", "large"),
    Wanted("research", "tuning", "mig-large"),
    Wanted("shop", "web", "mig-medium"),
    *(Wanted("ci", f"ui-{number}", "mig-small") for number in range(3)),
    *(Wanted("lab", f"lab-{number}", "shared-mps") for number in range(5)),
    *(Wanted("eda", f"notes-{number}", "shared-timesliced") for number in range(2)),
)
"""The pods on the node of the screenshots."""


def published(machine: str, config: Path | None = None, *, gpus: int | None = None) -> tuple[Object, ...]:
    """The slices of a node with this machine, or only with the first ``gpus`` of its GPUs."""
    planned = plan_node(machine, NODE, config)
    if gpus is None:
        return planned.slices
    inventory = replace(planned.inventory, gpus=planned.inventory.gpus[:gpus])
    return plan_inventory(inventory, NODE, load_config(config) if config else None).slices


def claimed(slices: Sequence[Object], wanted: Sequence[Wanted]) -> NodeView:
    """The node with the devices that the scheduler allocates to the pods, one after the other.

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
        claims.append(_allocated(claim, allocated[0], one))
        allocator.assume(claims[-1])
    (view,) = views_of(slices, claims)
    return view


def _claim(one: Wanted) -> Object:
    exactly: Object = {"deviceClassName": one.device_class}
    if one.capacity:
        exactly["capacity"] = {"requests": dict(one.capacity)}
    request = {"name": "gpu", "exactly": exactly}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": one.namespace, "name": one.name, "uid": f"{one.namespace}-{one.name}"},
        "spec": defaulted_claim_spec({"devices": {"requests": [request]}}),
    }


def _allocated(claim: Object, allocation: Object, one: Wanted) -> Object:
    user = {"resource": "pods", "name": one.name, "uid": f"pod-{one.name}"}
    return {**claim, "status": {"allocation": allocation, "reservedFor": [user]}}
