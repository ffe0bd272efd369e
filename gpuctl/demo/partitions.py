"""The demo's act about MIG: small pods share one GPU while others stay whole, then it is whole again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from driver.devices.device import MEMORY_SLICE
from driver.devices.names import gpu_device_name, unshared_name
from driver.kinds.partition.names import parse_partition_name
from driver.nvml.mig import Placement
from driver.slices.specs import read_devices
from gpuctl.demo.objects import SMALL_CLASS, DemoPod, small_pods
from gpuctl.demo.pods import DemoFailed, PodFacts, check_nothing_left, is_gpu_node, labels, run
from gpuctl.mig.bar import bar, ruler
from gpuctl.node.picture import GpuFacts

if TYPE_CHECKING:
    from gpuctl.demo.cluster import DemoCluster
    from gpuctl.demo.narrator import Narrator

CAPABILITY_NODES = "/dev/nvidia-caps/"


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What the act showed. GPUs go by their device names; places are memory slices, read from the machine.

    ``small`` shared ``gpu``; ``big``, None on a node of one GPU, had an uncut one beside them; ``huge`` got
    all GPUs afterwards. ``made`` and ``left`` are the GPUs in MIG mode with their GPU instances: while the
    small pods ran, and after all ended.
    """

    gpu: str
    profile: str
    small: tuple[PodFacts, ...]
    big: PodFacts | None
    huge: PodFacts
    made: Mapping[str, tuple[Placement, ...]]
    left: Mapping[str, tuple[Placement, ...]]


def partition_act(
    cluster: DemoCluster, narrator: Narrator, gpus: Sequence[GpuFacts]
) -> PartitionFacts | None:
    """Play the act on a node whose pods all ended; None where it has no GPU for it.

    ``gpus`` are those of the node, all offered whole. Raises DemoFailed, and what the cluster raises.
    """
    first = next((gpu for gpu in gpus if _profiles(gpu)), None)
    if first is None:
        narrator.say("no act about MIG: these GPUs cannot be cut, or only after a reset")
        return None
    ((profile, count), *_) = _profiles(first)
    forms = ", ".join(f"{most} x {name}" for name, most in _profiles(first))
    narrator.say(f"each of them is offered cut as well, and the scheduler decides:\n{forms}")
    wanted = small_pods(count)
    small = run(cluster, *wanted)
    made = cluster.cut()
    node = check_shared(first, small, made)
    names = f"[bold]{small[0].name}[/bold] to [bold]{small[-1].name}[/bold]"
    narrator.say(f"pods {names} (class {SMALL_CLASS}) share GPU {first.label}: a {profile} each")
    narrator.say(f"each sees {node} and the capability nodes of its own part alone")
    big = _big(cluster, narrator, gpus, made)
    narrator.show(picture(first, small, made[first.device], big, gpus, _memory_slices(cluster, first)))
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
    """The partitions that the GPU is offered in, and how many of each: profiles begin with a number."""
    return [form for form in gpu.forms if form[0][0].isdecimal()]


def check_shared(gpu: GpuFacts, small: Sequence[PodFacts], made: Mapping[str, tuple[Placement, ...]]) -> str:
    """The device node of the GPU, which all pods see; and what else they see is theirs alone.

    Raises DemoFailed when the machine has not exactly one GPU instance for each pod, on this GPU.
    """
    starts = sorted(_start(pod, gpu) for pod in small)
    if list(made) != [gpu.device] or [place.start for place in made[gpu.device]] != starts:
        raise DemoFailed(f"the pods have the parts at {starts} of {gpu.device}, but the machine made {made}")
    seen = [node for pod in small for one in pod.containers for node in one.device_nodes]
    shared = set(filter(is_gpu_node, seen))
    own = [node for node in seen if node.startswith(CAPABILITY_NODES)]
    if len(shared) != 1 or len(own) != 2 * len(small) or len(set(own)) != len(own):
        raise DemoFailed(
            f"{len(small)} pods need one GPU's node and two capability nodes each of their own, "
            f"but have {sorted(shared)} and {own}"
        )
    return shared.pop()


def _start(pod: PodFacts, gpu: GpuFacts) -> int:
    """The memory slice at which the pod's partition of this GPU begins; raises DemoFailed if it has none."""
    (device,) = pod.devices
    name = parse_partition_name(unshared_name(device))
    if name is None or gpu_device_name(name.pci) != gpu.device:
        raise DemoFailed(f"the pod {pod.name} got {device}, which is no partition of {gpu.device}")
    return name.start


def _big(
    cluster: DemoCluster, narrator: Narrator, gpus: Sequence[GpuFacts], made: Mapping[str, object]
) -> PodFacts | None:
    """A pod for one whole GPU, where one is uncut; the scheduler has to leave the cut one alone."""
    if len(gpus) == 1:
        return None
    (big,) = run(cluster, DemoPod("big"))
    if not made.keys().isdisjoint(big.devices) or cluster.cut() != made:
        raise DemoFailed(f"the pod {big.name} got {big.devices}, and cut are {', '.join(made)}")
    narrator.say(f"pod [bold]{big.name}[/bold] runs with GPU {labels(big.devices, gpus)}, a whole one")
    return big


def _check_whole(cluster: DemoCluster) -> None:
    """See that nothing of the pods is on the node, and no GPU is in MIG mode."""
    check_nothing_left(cluster)
    cut = cluster.cut()
    if cut:
        raise DemoFailed(f"all pods ended, but in MIG mode there are still {cut}", "look at the plugin's log")


def _memory_slices(cluster: DemoCluster, gpu: GpuFacts) -> int:
    """How many memory slices the GPU has, as its published counters say."""
    _, counter_sets = read_devices(one["spec"] for one in cluster.slices())
    counters = next(one.counters for one in counter_sets if one.name == gpu.device)
    return sum(name.startswith(MEMORY_SLICE) for name in counters)


def picture(
    cut: GpuFacts,
    small: Sequence[PodFacts],
    places: Sequence[Placement],
    big: PodFacts | None,
    gpus: Sequence[GpuFacts],
    slices: int,
) -> Text:
    """The cut GPU as a bar of memory slices with the pods in them, and who has the others; in 80 columns."""
    pods = {_start(pod, cut): pod.name for pod in small}
    parts = [(pods[place.start], place) for place in places]
    lines = [f"GPU {cut.label}: its memory slices, and who has them", ruler(slices), bar(parts, slices)]
    held = big.devices if big else ()
    if big is not None:
        lines.append(f"GPU {labels(held, gpus)}: whole, {big.name} has it")
    free = [gpu.device for gpu in gpus if gpu.device not in {cut.device, *held}]
    if free:
        lines.append(f"GPU {labels(free, gpus)}: whole, free")
    return Text("\n".join(lines), no_wrap=True)
