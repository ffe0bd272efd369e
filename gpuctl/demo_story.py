"""Tells the story of the demo on a cluster: GPUs are published, fill up, run short, and change hands."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.table import Table

from driver.errors import DriverError
from gpuctl.demo_objects import DemoPod, story_pods
from gpuctl.node_picture import GpuFacts, allocated_devices, gpu_table, published_gpus, ranges

if TYPE_CHECKING:
    from rich.console import Console

    from gpuctl.demo_cluster import DemoCluster

Object = dict[str, Any]


class DemoFailed(DriverError):
    """The story did not come out as it has to: a fault of the driver or of the cluster."""

    retryable = False


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """What a container got: paths of device nodes in it, variables, and how many mounts."""

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


@dataclass(frozen=True, slots=True)
class HandOver:
    """A pod that had to wait, the scheduler's reason, and whose devices it got in the end."""

    waiting_pod: str
    reason: str
    ended_pod: str
    freed_devices: tuple[str, ...]
    got_devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoryFacts:
    """All that the demo showed; ``left`` are files of claims that are still there at the end: none."""

    machine: str
    cluster: str
    node: str
    gpus: tuple[GpuFacts, ...]
    pods: tuple[PodFacts, ...]
    hand_over: HandOver
    left: tuple[str, ...]
    seconds: float


class Narrator:
    """Prints the steps with the time since the beginning, and the tables."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """The time since the beginning."""
        return time.monotonic() - self._started

    def say(self, text: str) -> None:
        """One step of the story."""
        line = Table.grid(padding=(0, 2))
        line.add_row(f"[dim]{self.seconds:5.1f} s[/dim]", text)
        self._console.print(line)

    def show(self, table: Table) -> None:
        """A table between empty lines."""
        self._console.print()
        self._console.print(table)
        self._console.print()


def tell(cluster: DemoCluster, narrator: Narrator) -> StoryFacts:
    """Start the cluster and play the story on it; the cluster is closed by the caller.

    Raises DemoFailed when something comes out wrong, and whatever the cluster raises.
    """
    cluster.start(narrator.say)
    gpus = published_gpus(cluster.slices(), cluster.claims())
    if not gpus:
        raise DemoFailed(f"the machine {cluster.machine} offers no whole GPU", "choose another one")
    narrator.say(f"[bold]{cluster.node_name}[/bold] offers {len(gpus)} GPU{'s' * (len(gpus) > 1)}")
    pods, late = story_pods(len(gpus))
    ran = [_run(cluster, pod, narrator, gpus) for pod in pods]
    full = published_gpus(cluster.slices(), cluster.claims())
    narrator.show(gpu_table(cluster.node_name, full))
    narrator.show(container_table(ran))
    hand_over, last = _hand_over(cluster, pods[0], ran[0], late, narrator, gpus)
    for pod in (*pods[1:], late):
        cluster.end(pod)
    left = cluster.left()
    if left:
        raise DemoFailed(
            f"all pods ended, but the node still has {', '.join(left)}", "look at the plugin's log"
        )
    narrator.say("all pods ended: claims unprepared, no CDI spec left")
    seconds = round(narrator.seconds, 3)
    return StoryFacts(
        cluster.machine, cluster.kind, cluster.node_name, full, (*ran, last), hand_over, left, seconds
    )


def _run(cluster: DemoCluster, pod: DemoPod, narrator: Narrator, gpus: Sequence[GpuFacts]) -> PodFacts:
    """Create a pod for which there are GPUs, and see that it gets as many as it asked for."""
    cluster.create(pod)
    return _running(cluster, pod, narrator, gpus)


def _running(cluster: DemoCluster, pod: DemoPod, narrator: Narrator, gpus: Sequence[GpuFacts]) -> PodFacts:
    containers = _containers(cluster, pod)
    devices = _devices_of(cluster, pod)
    own = {node for one in containers for node in one.device_nodes if is_gpu_node(node)}
    if len(devices) != pod.gpus or len(own) != pod.gpus:
        raise DemoFailed(
            f"the pod {pod.name} asked for {pod.gpus} GPUs, got {devices} and sees {sorted(own)}"
        )
    narrator.say(f"pod [bold]{pod.name}[/bold] runs with GPU {_labels(devices, gpus)}")
    return PodFacts(pod.name, devices, containers)


def _containers(cluster: DemoCluster, pod: DemoPod) -> tuple[ContainerFacts, ...]:
    """What the containers of a running pod got from the driver."""
    found = []
    for name, facts in cluster.wait_running(pod).items():
        nodes = tuple(node for node in facts.device_nodes if node.startswith(("/dev/nvidia", "/dev/dri/")))
        env = {key: value for key, value in facts.env.items() if key.startswith("NVIDIA_")}
        mounts = sum(cluster.is_driver_mount(one) for one in facts.mounts.values())
        found.append(ContainerFacts(name, nodes, env, mounts))
    return tuple(found)


def _hand_over(
    cluster: DemoCluster,
    ending: DemoPod,
    ended: PodFacts,
    late: DemoPod,
    narrator: Narrator,
    gpus: Sequence[GpuFacts],
) -> tuple[HandOver, PodFacts]:
    """One more pod waits, another one ends, and its GPU goes to the one that waited."""
    cluster.create(late)
    reason = cluster.wait_unschedulable(late)
    narrator.say(f"pod [bold]{late.name}[/bold] waits: {escape(reason)}")
    cluster.end(ending)
    narrator.say(f"pod [bold]{ending.name}[/bold] ended, GPU {_labels(ended.devices, gpus)} is free")
    last = _running(cluster, late, narrator, gpus)
    if not set(last.devices) <= set(ended.devices):
        raise DemoFailed(f"the pod {late.name} got {last.devices}, but only {ended.devices} were free")
    return HandOver(late.name, reason, ending.name, ended.devices, last.devices), last


def _devices_of(cluster: DemoCluster, pod: DemoPod) -> tuple[str, ...]:
    claim = next(one for one in cluster.claims() if one["metadata"]["name"] == pod.claim_name)
    return tuple(allocated_devices(claim))


def _labels(devices: Sequence[str], gpus: Sequence[GpuFacts]) -> str:
    chosen = [gpu for gpu in gpus if gpu.device in devices]
    if any(gpu.index is None for gpu in chosen):
        return ", ".join(devices)
    return ranges(gpu.index for gpu in chosen if gpu.index is not None)


def is_gpu_node(path: str) -> bool:
    """Whether a path in a container is the node of a GPU, ``/dev/nvidia<minor>``."""
    return path.removeprefix("/dev/nvidia").isdecimal()


def container_table(pods: Sequence[PodFacts]) -> Table:
    """What the containers got, in at most 80 columns; nodes that all have are told once, below."""
    everywhere = sorted(
        {
            node
            for pod in pods
            for one in pod.containers
            for node in one.device_nodes
            if not is_gpu_node(node) and not node.startswith("/dev/dri/")
        }
    )
    caption = f"and in each: {', '.join(everywhere)}"
    table = Table(title="What each container got", caption=caption, box=box.ROUNDED, caption_justify="left")
    table.add_column("Pod/container", overflow="fold")
    table.add_column("In /dev", overflow="fold", max_width=20)
    table.add_column("Env", overflow="fold")
    table.add_column("Mounts", justify="right")
    for pod in pods:
        for one in pod.containers:
            own = [node.removeprefix("/dev/") for node in one.device_nodes if node not in everywhere]
            own.sort(key=lambda node: node.startswith("dri/"))
            env = "\n".join(f"{name}={value}" for name, value in sorted(one.env.items()))
            table.add_row(f"{pod.name}/{one.name}", " ".join(own), env, str(one.mounts))
    return table
