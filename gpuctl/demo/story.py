"""Tells the story of the demo on a cluster: GPUs fill up, run short, change hands, are cut and shared.

It has three acts: whole GPUs, MIG partitions of one GPU, and shares of one GPU by MPS. Each act checks that
pods get what they asked for, and that nothing is left of them.
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
from driver.errors import DriverError
from driver.kinds.partition.names import parse_partition_name
from driver.nvml.mig import Placement
from driver.slices.specs import read_devices
from gpuctl.demo.cluster import DemoCluster
from gpuctl.demo.objects import SHARE_CLASS, SMALL_CLASS, DemoPod, pods_of_class, story_pods
from gpuctl.plan.node_gpus import WHOLE, GpuFacts, gpu_table, published_gpus, ranges
from gpuctl.plan.partition_bars import bar, ruler

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_SHARING_PODS = 4
_MIB_PER_GIB = 1024
_CAPABILITY_NODES = "/dev/nvidia-caps/"


class DemoFailed(DriverError):
    """Something in the story went wrong: a fault of the driver or of the cluster."""

    retryable = False


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
class ContainerFacts:
    """What a container got of NVIDIA: paths of device nodes, and variables."""

    name: str
    device_nodes: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod that ran: its devices and what each of its containers got."""

    name: str
    devices: tuple[str, ...]
    containers: tuple[ContainerFacts, ...]


@dataclass(frozen=True, slots=True)
class HandOver:
    """A pod that had to wait, the scheduler's reason, and the pod whose devices it got in the end."""

    waiting_pod: str
    reason: str
    ended_pod: str
    freed_devices: tuple[str, ...]
    got_devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The act about partitions: the small pods shared a GPU, and a big one had a whole one."""

    gpu: str
    """The GPU that was cut, by its device."""
    profile: str
    small: tuple[PodFacts, ...]
    big: PodFacts | None
    made: Mapping[str, tuple[Placement, ...]]
    """The GPUs in MIG mode while the small pods ran, with their GPU instances, as the machine says."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of MPS for each process of a pod: percent of the threads, and MiB of memory."""

    pod: str
    percentage: float
    memory_mib: int


@dataclass(frozen=True, slots=True)
class ShareFacts:
    """The act about shares: the pods that shared ``gpu``, a device, and their limits by MPS."""

    gpu: str
    pods: tuple[PodFacts, ...]
    limits: tuple[Limits, ...]


@dataclass(frozen=True, slots=True)
class DemoStory:
    """What `gpuctl demo` prints: what happened in the story.

    ``partitions`` and ``shares`` are missing if the machine offers no GPU in that form.
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
    """Files of claims that are still there at the end: none."""
    seconds: float


def tell(cluster: DemoCluster, narrator: Narrator) -> DemoStory:
    """Start the cluster and play the story on it; the caller closes the cluster.

    Raises DemoFailed if something goes wrong, and what the cluster raises.
    """
    cluster.start(narrator.say)
    gpus = published_gpus(cluster.slices(), cluster.claims())
    if not gpus:
        raise DemoFailed(f"the machine {cluster.machine} offers no whole GPU", "choose another one")
    narrator.say(f"[bold]{cluster.node_name}[/bold] offers {len(gpus)} GPU{'s' * (len(gpus) > 1)}")
    full, ran, hand_over = _whole_act(cluster, narrator, gpus)
    return DemoStory(
        machine=cluster.machine,
        cluster=cluster.kind,
        node=cluster.node_name,
        gpus=full,
        pods=ran,
        hand_over=hand_over,
        partitions=_partition_act(cluster, narrator, gpus),
        shares=_share_act(cluster, narrator, gpus),
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
        ran += _run(cluster, pod)
        _say_runs(narrator, ran[-1], gpus)
    full = published_gpus(cluster.slices(), cluster.claims())
    # The other forms of the GPUs are left out of this picture; the next acts show them.
    narrator.show(gpu_table(cluster.node_name, [replace(gpu, forms=((WHOLE, 1),)) for gpu in full]))
    most = max(ran, key=lambda pod: len(pod.devices))
    nodes = " and ".join(sorted(filter(_is_gpu_node, most.containers[0].device_nodes)))
    narrator.say(f"each container sees only the GPUs of its pod: that of [bold]{most.name}[/bold] {nodes}")
    hand_over, last = _hand_over(cluster, pods[0], ran[0], late, narrator, gpus)
    cluster.end(*pods[1:], late)
    _check_nothing_left(cluster)
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
    narrator.say(f"pod [bold]{ending.name}[/bold] ended, GPU {_labels(ended.devices, gpus)} is free")
    last = _running(cluster, late)
    _say_runs(narrator, last, gpus)
    if not set(last.devices) <= set(ended.devices):
        raise DemoFailed(f"the pod {late.name} got {last.devices}, but only {ended.devices} were free")
    return HandOver(late.name, reason, ending.name, ended.devices, last.devices), last


def _partition_act(
    cluster: DemoCluster, narrator: Narrator, gpus: Sequence[GpuFacts]
) -> PartitionFacts | None:
    """Small pods share one GPU, while another pod has a whole one; None if no GPU can be partitioned."""
    # Of all forms only profiles begin with a number: 1g.10gb.
    profiles = {gpu: [form for form in gpu.forms if form[0][0].isdecimal()] for gpu in gpus}
    first = next((gpu for gpu in gpus if profiles[gpu]), None)
    if first is None:
        narrator.say("the part about MIG is skipped: these GPUs cannot be cut, or only after a reset")
        return None
    ((profile, count), *_) = profiles[first]
    forms = ", ".join(f"{most} x {name}" for name, most in profiles[first])
    narrator.say(f"each of them can also be cut, and the scheduler decides:\n{forms}")
    wanted = pods_of_class(SMALL_CLASS, "small", count)
    small = _run(cluster, *wanted)
    made = cluster.cut()
    node = check_partitions(first, small, made)
    narrator.say(
        f"pods {_first_to_last(small)} (class {SMALL_CLASS}) share GPU {first.label}: a {profile} each"
    )
    narrator.say(f"each sees only {node} and the capability nodes of its own part")
    big = None
    if len(gpus) > 1:
        wanted.append(DemoPod("big"))
        (big,) = _run(cluster, wanted[-1])
        if not made.keys().isdisjoint(big.devices) or cluster.cut() != made:
            raise DemoFailed(f"the pod {big.name} got {big.devices}, but {', '.join(made)} are cut")
        narrator.say(f"pod [bold]{big.name}[/bold] runs with GPU {_labels(big.devices, gpus)}, a whole one")
    slices = _memory_slices(cluster, first)
    narrator.show(_partition_picture(first, small, made[first.device], big, gpus, slices))
    cluster.end(*wanted)
    _check_nothing_left(cluster)
    if cut := cluster.cut():
        raise DemoFailed(
            f"all pods ended, but some GPUs are still in MIG mode: {cut}", "see the plugin's log"
        )
    narrator.say(f"they ended: partitions destroyed, MIG mode off, GPU {first.label} is whole again")
    return PartitionFacts(first.device, profile, small, big, made)


def check_partitions(
    gpu: GpuFacts, small: Sequence[PodFacts], made: Mapping[str, tuple[Placement, ...]]
) -> str:
    """The device node of the GPU, which all pods see.

    Raises DemoFailed unless the machine has exactly one GPU instance for each pod, on this GPU, and each pod
    sees two capability nodes that no other pod sees.
    """
    starts = sorted(_start(pod, gpu) for pod in small)
    if list(made) != [gpu.device] or [place.start for place in made[gpu.device]] != starts:
        raise DemoFailed(f"the pods have the parts at {starts} of {gpu.device}, but the machine made {made}")
    seen = [node for pod in small for one in pod.containers for node in one.device_nodes]
    shared = set(filter(_is_gpu_node, seen))
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


def _memory_slices(cluster: DemoCluster, gpu: GpuFacts) -> int:
    """The number of memory slices of the GPU, as its published counters say."""
    _, counter_sets = read_devices(one["spec"] for one in cluster.slices())
    counters = next(one.counters for one in counter_sets if one.name == gpu.device)
    return sum(name.startswith(MEMORY_SLICE) for name in counters)


def _partition_picture(
    cut: GpuFacts,
    small: Sequence[PodFacts],
    places: Sequence[Placement],
    big: PodFacts | None,
    gpus: Sequence[GpuFacts],
    slices: int,
) -> Text:
    """The partitioned GPU as a bar of memory slices with their pods, and who has the other GPUs."""
    pods = {_start(pod, cut): pod.name for pod in small}
    lines = [
        f"GPU {cut.label}: its memory slices, and the pods that have them",
        ruler(slices),
        bar([(pods[place.start], place) for place in places], slices),
    ]
    held = big.devices if big else ()
    if big is not None:
        lines.append(f"GPU {_labels(held, gpus)}: whole, {big.name} has it")
    free = [gpu.device for gpu in gpus if gpu.device not in {cut.device, *held}]
    if free:
        lines.append(f"GPU {_labels(free, gpus)}: whole, free")
    return Text("\n".join(lines), no_wrap=True)


def _share_act(cluster: DemoCluster, narrator: Narrator, gpus: Sequence[GpuFacts]) -> ShareFacts | None:
    """Pods share one GPU by MPS; None if MPS can share none."""
    if not any(name.startswith("MPS:") for gpu in gpus for name, _ in gpu.forms):
        narrator.say("the part about shares is skipped: MPS cannot enforce limits on these GPUs")
        return None
    wanted = pods_of_class(SHARE_CLASS, "share", _SHARING_PODS)
    pods = _run(cluster, *wanted)
    limits = tuple(map(_limits, pods))
    gpu = check_shares(gpus, pods, limits)
    label = _labels([gpu], gpus)
    narrator.say(f"pods {_first_to_last(pods)} (class {SHARE_CLASS}) compute together on GPU {label}")
    table = Table(title="The limits of MPS for each pod", box=box.ROUNDED)
    table.add_column("Pod")
    table.add_column("Threads", justify="right")
    table.add_column("Memory", justify="right")
    for one in limits:
        table.add_row(one.pod, f"{one.percentage:g} %", f"{one.memory_mib / _MIB_PER_GIB:.1f} GiB")
    narrator.show(table)
    cluster.end(*wanted)
    _check_nothing_left(cluster)
    narrator.say(f"they ended: MPS is stopped, GPU {label} is whole again")
    return ShareFacts(gpu, pods, limits)


def _limits(pod: PodFacts) -> Limits:
    """The limits that MPS has for the processes of a pod, as the variables of its container say."""
    env = pod.containers[0].env
    pinned = env.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "").split(",")
    # MPS numbers the GPUs that a client sees, and each of these sees one.
    mib = next((one.removeprefix("0=").removesuffix("M") for one in pinned if one.startswith("0=")), "0")
    return Limits(pod.name, float(env.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100")), int(mib))


def check_shares(gpus: Sequence[GpuFacts], pods: Sequence[PodFacts], limits: Sequence[Limits]) -> str:
    """The GPU that the pods share, by its device.

    Raises DemoFailed unless it is one GPU, and each pod has exactly its part of it.
    """
    (device, *others) = {device for pod in pods for device in pod.devices}
    seen = {node for pod in pods for one in pod.containers for node in filter(_is_gpu_node, one.device_nodes)}
    _, form = split_shared_suffix(device)
    gpu = next((one for one in gpus if one.device == unshared_name(device)), None)
    if others or len(seen) != 1 or gpu is None or form is None:
        raise DemoFailed(
            f"the pods have {[device, *others]} and see {sorted(seen)}: these are not shares of one GPU"
        )
    part = form.shares or _SHARING_PODS
    memory_mib = (gpu.shareable_bytes or 0) // part >> 20
    for one in limits:
        if one.percentage != 100 // part or one.memory_mib != memory_mib:
            raise DemoFailed(f"a share is {100 // part} percent and {memory_mib} MiB, but MPS says {one}")
    return gpu.device


def _run(cluster: DemoCluster, *pods: DemoPod) -> tuple[PodFacts, ...]:
    """Create pods for which there are devices, and check that each gets as many as it asked for."""
    cluster.create(*pods)
    return tuple(_running(cluster, pod) for pod in pods)


def _running(cluster: DemoCluster, pod: DemoPod) -> PodFacts:
    """Wait until a pod runs, and check that it has the devices that it asked for, and a GPU node for each."""
    containers = []
    for name, facts in cluster.wait_running(pod).items():
        # Of NVIDIA's alone; a container has nodes such as /dev/null from the runtime.
        nodes = tuple(node for node in facts.device_nodes if node.startswith(("/dev/nvidia", "/dev/dri/")))
        env = {key: value for key, value in facts.env.items() if key.startswith(("NVIDIA_", "CUDA_MPS_"))}
        containers.append(ContainerFacts(name, nodes, env))
    claim = next(one for one in cluster.claims() if one["metadata"]["name"] == pod.claim_name)
    allocation = (claim.get("status") or {}).get("allocation") or {}
    devices = tuple(str(one["device"]) for one in allocation.get("devices", {}).get("results") or ())
    for one in containers:
        own = sorted(filter(_is_gpu_node, one.device_nodes))
        if len(devices) != pod.count or len(own) != pod.count:
            raise DemoFailed(
                f"the pod {pod.name} asked for {pod.count} devices, got {devices}, and {one.name} sees {own}"
            )
    return PodFacts(pod.name, devices, tuple(containers))


def _check_nothing_left(cluster: DemoCluster) -> None:
    """Check that no file of a claim is on the node."""
    if left := cluster.left():
        raise DemoFailed(f"all pods ended, but the node still has {', '.join(left)}", "see the plugin's log")


def _is_gpu_node(path: str) -> bool:
    """Whether a path in a container is the node of a GPU, ``/dev/nvidia<minor>``."""
    return path.removeprefix("/dev/nvidia").isdecimal()


def _labels(devices: Sequence[str], gpus: Sequence[GpuFacts]) -> str:
    """The indexes of the whole GPUs with these device names: ``0,2-3``."""
    chosen = [gpu for gpu in gpus if gpu.device in devices]
    if any(gpu.index is None for gpu in chosen):
        return ", ".join(devices)
    return ranges(gpu.index for gpu in chosen if gpu.index is not None)


def _say_runs(narrator: Narrator, pod: PodFacts, gpus: Sequence[GpuFacts]) -> None:
    narrator.say(f"pod [bold]{pod.name}[/bold] runs with GPU {_labels(pod.devices, gpus)}")


def _first_to_last(pods: Sequence[PodFacts]) -> str:
    return f"[bold]{pods[0].name}[/bold] to [bold]{pods[-1].name}[/bold]"
