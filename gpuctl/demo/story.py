"""Tells the story of the demo on a cluster: GPUs fill up, run short, change hands, are cut and shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich import box
from rich.markup import escape
from rich.table import Table

from gpuctl.demo.objects import DemoPod, story_pods
from gpuctl.demo.partitions import PartitionFacts, partition_act
from gpuctl.demo.pods import DemoFailed, PodFacts, check_nothing_left, is_gpu_node, labels, run, running
from gpuctl.demo.shares import ShareFacts, share_act
from gpuctl.node.picture import WHOLE, GpuFacts, gpu_table, published_gpus

if TYPE_CHECKING:
    from gpuctl.demo.cluster import DemoCluster
    from gpuctl.demo.narrator import Narrator


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
    """All that the demo showed; ``left`` are files of claims that are still there at the end: none.

    ``partitions`` and ``shares`` are None on a machine that offers no GPU so beside whole.
    """

    machine: str
    cluster: str
    node: str
    gpus: tuple[GpuFacts, ...]
    pods: tuple[PodFacts, ...]
    hand_over: HandOver
    partitions: PartitionFacts | None
    shares: ShareFacts | None
    left: tuple[str, ...]
    seconds: float


def tell(cluster: DemoCluster, narrator: Narrator) -> StoryFacts:
    """Start the cluster and play the story on it; the cluster is closed by the caller.

    Raises DemoFailed when something comes out wrong, and whatever the cluster raises.
    """
    cluster.start(narrator.say)
    gpus = published_gpus(cluster.slices(), cluster.claims())
    if not gpus:
        raise DemoFailed(f"the machine {cluster.machine} offers no whole GPU", "choose another one")
    narrator.say(f"[bold]{cluster.node_name}[/bold] offers {len(gpus)} GPU{'s' * (len(gpus) > 1)}")
    full, ran, hand_over = _whole_act(cluster, narrator, gpus)
    partitions = partition_act(cluster, narrator, gpus)
    shares = share_act(cluster, narrator, gpus)
    return StoryFacts(
        machine=cluster.machine,
        cluster=cluster.kind,
        node=cluster.node_name,
        gpus=full,
        pods=ran,
        hand_over=hand_over,
        partitions=partitions,
        shares=shares,
        left=cluster.left(),
        seconds=round(narrator.seconds, 3),
    )


def _whole_act(
    cluster: DemoCluster, narrator: Narrator, gpus: Sequence[GpuFacts]
) -> tuple[tuple[GpuFacts, ...], tuple[PodFacts, ...], HandOver]:
    """Whole GPUs: pods take them all, one waits for another's, and all end."""
    pods, late = story_pods(len(gpus))
    ran: list[PodFacts] = []
    for pod in pods:
        ran += run(cluster, pod)
        _say_runs(narrator, ran[-1], gpus)
    full = published_gpus(cluster.slices(), cluster.claims())
    # All are held as a whole here: what else could be made of them comes later.
    narrator.show(gpu_table(cluster.node_name, [replace(gpu, forms=((WHOLE, 1),)) for gpu in full]))
    narrator.show(container_table(ran))
    hand_over, last = _hand_over(cluster, pods[0], ran[0], late, narrator, gpus)
    cluster.end(*pods[1:], late)
    check_nothing_left(cluster)
    narrator.say("all pods ended: claims unprepared, no CDI spec left")
    return full, (*ran, last), hand_over


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
    narrator.say(f"pod [bold]{ending.name}[/bold] ended, GPU {labels(ended.devices, gpus)} is free")
    last = running(cluster, late)
    _say_runs(narrator, last, gpus)
    if not set(last.devices) <= set(ended.devices):
        raise DemoFailed(f"the pod {late.name} got {last.devices}, but only {ended.devices} were free")
    return HandOver(late.name, reason, ending.name, ended.devices, last.devices), last


def _say_runs(narrator: Narrator, pod: PodFacts, gpus: Sequence[GpuFacts]) -> None:
    narrator.say(f"pod [bold]{pod.name}[/bold] runs with GPU {labels(pod.devices, gpus)}")


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
