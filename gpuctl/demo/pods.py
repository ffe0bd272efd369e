"""Runs pods of the demo's story, and checks that each gets what it asked for and that nothing is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driver.errors import DriverError
from gpuctl.demo.cluster import DemoCluster
from gpuctl.demo.objects import DemoPod
from gpuctl.plan.node_gpus import GpuFacts, ranges


class DemoFailed(DriverError):
    """Something in the story went wrong: a fault of the driver or of the cluster."""

    retryable = False


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """What a container got: paths of device nodes, variables, and the number of mounts."""

    name: str
    device_nodes: tuple[str, ...]
    env: Mapping[str, str]
    mounts: int


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod that ran: its devices and what each of its containers got."""

    name: str
    devices: tuple[str, ...]
    containers: tuple[ContainerFacts, ...]


def run(cluster: DemoCluster, *pods: DemoPod) -> tuple[PodFacts, ...]:
    """Create pods for which there are devices, and check that each gets as many as it asked for."""
    cluster.create(*pods)
    return tuple(running(cluster, pod) for pod in pods)


def running(cluster: DemoCluster, pod: DemoPod) -> PodFacts:
    """Wait until a pod runs, and check that it has the devices that it asked for, and a GPU node for each."""
    containers = _containers(cluster, pod)
    claim = next(one for one in cluster.claims() if one["metadata"]["name"] == pod.claim_name)
    allocation = (claim.get("status") or {}).get("allocation") or {}
    devices = tuple(str(one["device"]) for one in allocation.get("devices", {}).get("results") or ())
    for one in containers:
        own = sorted(filter(is_gpu_node, one.device_nodes))
        if len(devices) != pod.count or len(own) != pod.count:
            raise DemoFailed(
                f"the pod {pod.name} asked for {pod.count} devices, got {devices}, and {one.name} sees {own}"
            )
    return PodFacts(pod.name, devices, containers)


def _containers(cluster: DemoCluster, pod: DemoPod) -> tuple[ContainerFacts, ...]:
    """What the containers of a running pod got from the driver."""
    found = []
    for name, facts in cluster.wait_running(pod).items():
        # Of NVIDIA's alone; a container has nodes such as /dev/null from the runtime.
        nodes = tuple(node for node in facts.device_nodes if node.startswith(("/dev/nvidia", "/dev/dri/")))
        env = {key: value for key, value in facts.env.items() if key.startswith("NVIDIA_")}
        mounts = sum(cluster.is_driver_mount(one) for one in facts.mounts.values())
        found.append(ContainerFacts(name, nodes, env, mounts))
    return tuple(found)


def check_nothing_left(cluster: DemoCluster) -> None:
    """Check that no file of a claim is on the node; raises DemoFailed."""
    left = cluster.left()
    if left:
        raise DemoFailed(f"all pods ended, but the node still has {', '.join(left)}", "see the plugin's log")


def is_gpu_node(path: str) -> bool:
    """Whether a path in a container is the node of a GPU, ``/dev/nvidia<minor>``."""
    return path.removeprefix("/dev/nvidia").isdecimal()


def labels(devices: Sequence[str], gpus: Sequence[GpuFacts]) -> str:
    """The indexes of the whole GPUs with these device names: ``0,2-3``."""
    chosen = [gpu for gpu in gpus if gpu.device in devices]
    if any(gpu.index is None for gpu in chosen):
        return ", ".join(devices)
    return ranges(gpu.index for gpu in chosen if gpu.index is not None)
