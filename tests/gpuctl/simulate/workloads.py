"""Groups of pods and runs of them, as the tests of simulate have them."""

from __future__ import annotations

from typing import Any

from gpuctl.plan.planned import plan_node
from gpuctl.simulate.cluster import SimulatedCluster, load_classes, planned_cluster
from gpuctl.simulate.results import Result
from gpuctl.simulate.simulation import Simulation
from gpuctl.simulate.workload import PodGroup

CLASS = "gpu.nvidia.com"


def wants(count: int = 1, device_class: str = CLASS, **devices: Any) -> dict[str, Any]:
    """The spec of a claim for so many devices of a class."""
    exactly = {"deviceClassName": device_class, "count": count}
    return {"devices": {"requests": [{"name": "gpus", "exactly": exactly}], **devices}}


def group(name: str, count: int, *claims: dict[str, Any], **more: Any) -> PodGroup:
    """Pods with these claims, or with one for one GPU."""
    return PodGroup(name, count, claims or (wants(),), **more)


def machines(*counts: tuple[str, int]) -> SimulatedCluster:
    """So many nodes of each shipped machine, with the shipped classes."""
    published = [(count, plan_node(machine, "node", None).slices) for machine, count in counts]
    return planned_cluster(published, load_classes(()))


def run(
    *groups: PodGroup, nodes: int = 2, machine: str = "a30-quad", seed: int = 1, hours: float | None = None
) -> Result:
    """A run over like nodes."""
    return run_on(machines((machine, nodes)), *groups, seed=seed, hours=hours)


def run_on(cluster: SimulatedCluster, *groups: PodGroup, seed: int = 1, hours: float | None = None) -> Result:
    """A run over any cluster."""
    until = None if hours is None else hours * 3600
    return Simulation(cluster, groups, seed, until).run(lambda _: None)
