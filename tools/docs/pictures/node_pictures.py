"""The documentation's pictures that ``gpuctl -o svg`` draws of nodes.

They are drawn from what a node publishes and the scheduler allocates: the forms of a GPU, the links between
GPUs, which pod holds which device, and a simulated day.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from driver.policy.config import load_config
from gpuctl.fleet.cluster import views_of
from gpuctl.fleet.nodes import NodeView
from gpuctl.node.picture import published_gpus
from gpuctl.node.planned import plan_inventory, plan_node
from gpuctl.node.topology_matrix import matrix_of
from gpuctl.node.topology_svg import topology_svg
from gpuctl.simulate.cluster import load_classes, planned_cluster
from gpuctl.simulate.course_svg import course_svg
from gpuctl.simulate.simulation import Simulation
from gpuctl.simulate.timeline import Timeline
from gpuctl.simulate.trace import Arrival
from gpuctl.simulate.workload import PodGroup
from kubernetes_rules.allocator.allocate import Allocator
from kubernetes_rules.defaults import defaulted_claim_spec

Object = dict[str, Any]

ROOT = Path(__file__).resolve().parents[3]
ALL_TIERS = ROOT / "deploy" / "examples" / "node-config" / "all-tiers.yaml"
NODE = "node-a"
MACHINE = "hgx-h100"
_MESHED_MACHINE = "dgx1-v100"
"""A machine whose NVLinks do not connect every GPU with every other, so that the picture shows something."""
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
"""The pods on the node of the picture ``occupancy``."""

_NODES, _DAY_SECONDS = 4, 86_400
# Name, class, devices of it, pods a day, hours that they run.
_PODS_OF_A_DAY = (
    ("train", "large", 4, 20, 4.0),
    ("tune", "mig-large", 1, 90, 1.5),
    ("notebook", "mig-small", 1, 200, 2.0),
    ("serve", "shared-mps", 1, 120, 1.0),
)


def topology() -> str:
    """The GPUs of a DGX-1."""
    gpus = published_gpus(published(_MESHED_MACHINE), ())
    return topology_svg(_MESHED_MACHINE, matrix_of(gpus))


def day() -> str:
    """Notebooks, services and training on four nodes: most pods come in the middle of the day."""
    groups, trace = [], []
    chance = random.Random(7)  # noqa: S311 - no secret
    for index, (name, device_class, count, pods, hours) in enumerate(_PODS_OF_A_DAY):
        request = {"name": "gpu", "exactly": {"deviceClassName": device_class, "count": count}}
        groups.append(PodGroup(name, 0, ({"devices": {"requests": [request]}},)))
        for _ in range(pods):
            arrival = chance.betavariate(2.5, 2.5) * _DAY_SECONDS
            trace.append(Arrival(arrival, index, 1, 3600 * hours * chance.lognormvariate(0, 0.5)))
    trace.sort(key=lambda one: one.seconds)
    published = plan_node(MACHINE, "node", ALL_TIERS).slices
    cluster = planned_cluster([(_NODES, published)], load_classes(()))
    timeline = Timeline(cluster)
    Simulation(cluster, groups, 1, _DAY_SECONDS, trace, timeline).run(lambda _: None)
    return course_svg(timeline.course(_DAY_SECONDS))


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
