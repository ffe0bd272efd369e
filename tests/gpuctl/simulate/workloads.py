"""Groups of pods and simulations of them, as the tests of simulate have them."""

from typing import Any

from gpuctl.simulate.cluster import SimulatedCluster, load_classes, planned_cluster
from gpuctl.simulate.placing import simulate
from gpuctl.simulate.results import Simulation
from gpuctl.simulate.workload import PodGroup
from tests.clusters import Object, plan_node

CLASS = "gpu.nvidia.com"


def wants(count: int = 1, device_class: str = CLASS, **devices: Any) -> Object:
    """The spec of a claim for so many devices of a class."""
    exactly = {"deviceClassName": device_class, "count": count}
    return {"devices": {"requests": [{"name": "gpus", "exactly": exactly}], **devices}}


def group(name: str, count: int, *claims: Object, **more: Any) -> PodGroup:
    """Pods with these claims, or with one for one GPU."""
    return PodGroup(name, count, claims or (wants(),), **more)


def machines(*counts: tuple[str, int]) -> SimulatedCluster:
    """So many nodes of each shipped machine, with the shipped classes."""
    published = [(count, plan_node(machine, "node", None).slices) for machine, count in counts]
    return planned_cluster(published, load_classes(()))


def run(*groups: PodGroup, nodes: int = 2, seed: int = 1) -> Simulation:
    """A simulation on so many nodes with four GPUs."""
    return simulate(machines(("a30-quad", nodes)), groups, seed)
