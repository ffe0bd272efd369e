"""Tells the story of the demo on a cluster: GPUs fill up, run short, change hands, are cut and shared.

It has three acts: whole GPUs, MIG partitions of one GPU, and shares of one GPU by MPS.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from driver.devices.device import MEMORY_SLICE
from driver.devices.names import gpu_device_name, unshared_name
from driver.devices.sharing import split_shared_suffix
from driver.kinds.partition.names import parse_partition_name
from driver.nvml.mig import Placement
from driver.nvml.modes import ComputeMode
from driver.slices.specs import read_devices
from gpuctl.demo.cluster import DemoCluster
from gpuctl.demo.objects import SHARE_CLASS, SMALL_CLASS, DemoPod, share_pods, small_pods, story_pods
from gpuctl.demo.pods import DemoFailed, PodFacts, check_nothing_left, is_gpu_node, labels, run, running
from gpuctl.plan.node_gpus import WHOLE, GpuFacts, gpu_table, published_gpus
from gpuctl.plan.partition_bars import bar, ruler

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


_SHARING_PODS = 4
_MPS_MODE: ComputeMode = "exclusive-process"
_MIB_PER_GIB = 1024

_CAPABILITY_NODES = "/dev/nvidia-caps/"


class Narrator:
    """Prints the steps of the story with the time since its beginning, and the pictures."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """The time since the beginning."""
        return time.monotonic() - self._started

    def say(self, text: str) -> None:
        """Print a step of the story, in rich's markup."""
        # A grid keeps the further lines of a long text beside the time, not below it.
        line = Table.grid(padding=(0, 2))
        line.add_row(f"[dim]{self.seconds:5.1f} s[/dim]", text)
        self._console.print(line)

    def show(self, picture: RenderableType) -> None:
        """Print a picture between empty lines."""
        self._console.print()
        self._console.print(picture)
        self._console.print()


@dataclass(frozen=True, slots=True)
class HandOver:
    """A pod that had to wait, the scheduler's reason, and the pod whose devices it got in the end."""

    waiting_pod: str
    reason: str
    ended_pod: str
    freed_devices: tuple[str, ...]
    got_devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoryFacts:
    """Everything that the demo showed; ``left`` are the files of claims that are left at the end: none.

    ``partitions`` and ``shares`` are None if the machine offers no GPU in that form.
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
    """Start the cluster and play the story on it; the caller closes the cluster.

    Raises DemoFailed if something goes wrong, and what the cluster raises.
    """
    cluster.start(narrator.say)
    gpus = published_gpus(cluster.slices(), cluster.claims())
    if not gpus:
        raise DemoFailed(f"the machine {cluster.machine} offers no whole GPU", "choose another one")
    narrator.say(f"[bold]{cluster.node_name}[/bold] offers {len(gpus)} GPU{'s' * (len(gpus) > 1)}")
    full, ran, hand_over = _whole_act(cluster, narrator, gpus)
    partitions = _partition_act(cluster, narrator, gpus)
    shares = _share_act(cluster, narrator, gpus)
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
    """Whole GPUs: pods take all of them, one more pod waits until another ends, and all end."""
    pods, late = story_pods(len(gpus))
    ran: list[PodFacts] = []
    for pod in pods:
        ran += run(cluster, pod)
        _say_runs(narrator, ran[-1], gpus)
    full = published_gpus(cluster.slices(), cluster.claims())
    # The other forms of the GPUs are left out of this picture; the next acts show them.
    narrator.show(gpu_table(cluster.node_name, [replace(gpu, forms=((WHOLE, 1),)) for gpu in full]))
    narrator.show(_container_table(ran))
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
    """One more pod waits, another one ends, and the waiting pod gets its GPU."""
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


def _container_table(pods: Sequence[PodFacts]) -> Table:
    """What the containers got, in at most 80 columns; nodes that all of them have are listed once, below."""
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


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What the act showed. GPUs are named by their devices; placements are read from the machine.

    The pods ``small`` shared ``gpu``; meanwhile ``big`` had a whole GPU, None on a node of one GPU; ``huge``
    got all GPUs afterwards. ``made`` and ``left`` are the GPUs in MIG mode with their GPU instances: while
    the small pods ran, and after all pods ended.
    """

    gpu: str
    profile: str
    small: tuple[PodFacts, ...]
    big: PodFacts | None
    huge: PodFacts
    made: Mapping[str, tuple[Placement, ...]]
    left: Mapping[str, tuple[Placement, ...]]


def _partition_act(
    cluster: DemoCluster, narrator: Narrator, gpus: Sequence[GpuFacts]
) -> PartitionFacts | None:
    """Play the act on a node without pods; None if no GPU of it can be partitioned.

    ``gpus`` are the GPUs of the node, all offered whole. Raises DemoFailed, and what the cluster raises.
    """
    first = next((gpu for gpu in gpus if _profiles(gpu)), None)
    if first is None:
        narrator.say("the part about MIG is skipped: these GPUs cannot be cut, or only after a reset")
        return None
    ((profile, count), *_) = _profiles(first)
    forms = ", ".join(f"{most} x {name}" for name, most in _profiles(first))
    narrator.say(f"each of them can also be cut, and the scheduler decides:\n{forms}")
    wanted = small_pods(count)
    small = run(cluster, *wanted)
    made = cluster.cut()
    node = check_shared(first, small, made)
    names = f"[bold]{small[0].name}[/bold] to [bold]{small[-1].name}[/bold]"
    narrator.say(f"pods {names} (class {SMALL_CLASS}) share GPU {first.label}: a {profile} each")
    narrator.say(f"each sees only {node} and the capability nodes of its own part")
    big = _big(cluster, narrator, gpus, made)
    narrator.show(
        partition_picture(first, small, made[first.device], big, gpus, _memory_slices(cluster, first))
    )
    cluster.end(*wanted, *([DemoPod(big.name)] if big else []))
    _check_whole(cluster)
    narrator.say(f"they ended: partitions destroyed, MIG mode off, GPU {first.label} is whole again")
    everything = DemoPod("huge", len(gpus))
    (huge,) = run(cluster, everything)
    narrator.say(f"pod [bold]{huge.name}[/bold] runs with GPU {labels(huge.devices, gpus)}")
    cluster.end(everything)
    _check_whole(cluster)
    narrator.say("all pods ended, nothing is left on the node")
    return PartitionFacts(first.device, profile, small, big, huge, made, cluster.cut())


def _profiles(gpu: GpuFacts) -> list[tuple[str, int]]:
    """The profiles of the partitions that the GPU is offered in, with the number of each."""
    # Of all forms only profiles begin with a number: 1g.10gb.
    return [form for form in gpu.forms if form[0][0].isdecimal()]


def check_shared(gpu: GpuFacts, small: Sequence[PodFacts], made: Mapping[str, tuple[Placement, ...]]) -> str:
    """The device node of the GPU, which all pods see.

    Raises DemoFailed unless the machine has exactly one GPU instance for each pod, on this GPU, and each pod
    sees two capability nodes that no other pod sees.
    """
    starts = sorted(_start(pod, gpu) for pod in small)
    if list(made) != [gpu.device] or [place.start for place in made[gpu.device]] != starts:
        raise DemoFailed(f"the pods have the parts at {starts} of {gpu.device}, but the machine made {made}")
    seen = [node for pod in small for one in pod.containers for node in one.device_nodes]
    shared = set(filter(is_gpu_node, seen))
    # One node gives access to a GPU instance, another to a compute instance in it.
    own = [node for node in seen if node.startswith(_CAPABILITY_NODES)]
    if len(shared) != 1 or len(own) != 2 * len(small) or len(set(own)) != len(own):
        raise DemoFailed(
            f"{len(small)} pods need one GPU's node and two capability nodes each of their own, "
            f"but have {sorted(shared)} and {own}"
        )
    return shared.pop()


def _start(pod: PodFacts, gpu: GpuFacts) -> int:
    """The memory slice at which the pod's partition of this GPU begins; raises DemoFailed without one."""
    (device,) = pod.devices
    name = parse_partition_name(unshared_name(device))
    if name is None or gpu_device_name(name.pci) != gpu.device:
        raise DemoFailed(f"the pod {pod.name} got {device}, which is not a partition of {gpu.device}")
    return name.start


def _big(
    cluster: DemoCluster, narrator: Narrator, gpus: Sequence[GpuFacts], made: Mapping[str, object]
) -> PodFacts | None:
    """Run a pod for a whole GPU, which must not be the partitioned one; None on a node of one GPU."""
    if len(gpus) == 1:
        return None
    (big,) = run(cluster, DemoPod("big"))
    if not made.keys().isdisjoint(big.devices) or cluster.cut() != made:
        raise DemoFailed(f"the pod {big.name} got {big.devices}, but {', '.join(made)} are cut")
    narrator.say(f"pod [bold]{big.name}[/bold] runs with GPU {labels(big.devices, gpus)}, a whole one")
    return big


def _check_whole(cluster: DemoCluster) -> None:
    """Check that nothing of the pods is on the node, and no GPU is in MIG mode."""
    check_nothing_left(cluster)
    cut = cluster.cut()
    if cut:
        raise DemoFailed(
            f"all pods ended, but some GPUs are still in MIG mode: {cut}", "see the plugin's log"
        )


def _memory_slices(cluster: DemoCluster, gpu: GpuFacts) -> int:
    """The number of memory slices of the GPU, as its published counters say."""
    _, counter_sets = read_devices(one["spec"] for one in cluster.slices())
    counters = next(one.counters for one in counter_sets if one.name == gpu.device)
    return sum(name.startswith(MEMORY_SLICE) for name in counters)


def partition_picture(
    cut: GpuFacts,
    small: Sequence[PodFacts],
    places: Sequence[Placement],
    big: PodFacts | None,
    gpus: Sequence[GpuFacts],
    slices: int,
) -> Text:
    """The partitioned GPU as a bar of memory slices with their pods, and who has the other GPUs."""
    pods = {_start(pod, cut): pod.name for pod in small}
    parts = [(pods[place.start], place) for place in places]
    lines = [
        f"GPU {cut.label}: its memory slices, and the pods that have them",
        ruler(slices),
        bar(parts, slices),
    ]
    held = big.devices if big else ()
    if big is not None:
        lines.append(f"GPU {labels(held, gpus)}: whole, {big.name} has it")
    free = [gpu.device for gpu in gpus if gpu.device not in {cut.device, *held}]
    if free:
        lines.append(f"GPU {labels(free, gpus)}: whole, free")
    return Text("\n".join(lines), no_wrap=True)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of MPS for each process of a pod: percent of the threads, and MiB of memory."""

    pod: str
    percentage: float
    memory_mib: int


@dataclass(frozen=True, slots=True)
class ShareFacts:
    """What the act showed: the pods that shared ``gpu``, a device name, and their limits by MPS.

    ``modes`` has the GPUs whose compute mode was not the default meanwhile.
    """

    gpu: str
    pods: tuple[PodFacts, ...]
    limits: tuple[Limits, ...]
    modes: Mapping[str, ComputeMode]


def _share_act(cluster: DemoCluster, narrator: Narrator, gpus: Sequence[GpuFacts]) -> ShareFacts | None:
    """Play the act on a node without pods; None if MPS can share none of its GPUs.

    Raises DemoFailed, and what the cluster raises.
    """
    if not any(name.startswith("MPS:") for gpu in gpus for name, _ in gpu.forms):
        narrator.say("the part about shares is skipped: MPS cannot enforce limits on these GPUs")
        return None
    wanted = share_pods(_SHARING_PODS)
    pods = run(cluster, *wanted)
    given = [(pod.name, cluster.mps_limits(pod)) for pod in wanted]
    # MPS numbers the GPUs that a client sees, and each of these sees one.
    limits = tuple(Limits(name, one.percentage, one.pinned_mib.get("0", 0)) for name, one in given)
    modes = cluster.compute_modes()
    gpu = check_shares(gpus, pods, limits, modes)
    names = f"[bold]{pods[0].name}[/bold] to [bold]{pods[-1].name}[/bold]"
    narrator.say(f"pods {names} (class {SHARE_CLASS}) compute together on GPU {labels([gpu], gpus)}")
    narrator.show(_limits_table(limits))
    cluster.end(*wanted)
    check_nothing_left(cluster)
    left = cluster.compute_modes()
    if left:
        raise DemoFailed(f"all pods ended, but the compute mode is still {left}", "see the plugin's log")
    narrator.say(f"they ended: MPS is stopped, GPU {labels([gpu], gpus)} is whole again")
    return ShareFacts(gpu, pods, limits, modes)


def check_shares(
    gpus: Sequence[GpuFacts],
    pods: Sequence[PodFacts],
    limits: Sequence[Limits],
    modes: Mapping[str, ComputeMode],
) -> str:
    """The GPU that the pods share, by its device name.

    Raises DemoFailed unless it is one GPU that only MPS can use, and each pod has exactly its part of it.
    """
    (device, *others) = {device for pod in pods for device in pod.devices}
    seen = {node for pod in pods for one in pod.containers for node in filter(is_gpu_node, one.device_nodes)}
    _, form = split_shared_suffix(device)
    gpu = next((one for one in gpus if one.device == unshared_name(device)), None)
    if others or len(seen) != 1 or gpu is None or form is None:
        raise DemoFailed(
            f"the pods have {[device, *others]} and see {sorted(seen)}: these are not shares of one GPU"
        )
    # In this compute mode the NVIDIA driver lets one process at a time use the GPU: the MPS server.
    if modes != {gpu.device: _MPS_MODE}:
        raise DemoFailed(f"the pods share {gpu.device} by MPS, but the compute modes are {dict(modes)}")
    part = form.shares or _SHARING_PODS
    memory_mib = (gpu.shareable_bytes or 0) // part >> 20
    for one in limits:
        if one.percentage != 100 // part or one.memory_mib != memory_mib:
            raise DemoFailed(f"a share is {100 // part} percent and {memory_mib} MiB, but MPS says {one}")
    return gpu.device


def _limits_table(limits: Sequence[Limits]) -> Table:
    """The limits of each pod, in at most 80 columns."""
    table = Table(title="The limits of MPS for each pod", box=box.ROUNDED)
    table.add_column("Pod")
    table.add_column("Threads", justify="right")
    table.add_column("Memory", justify="right")
    for one in limits:
        table.add_row(one.pod, f"{one.percentage:g} %", f"{one.memory_mib / _MIB_PER_GIB:.1f} GiB")
    return table
