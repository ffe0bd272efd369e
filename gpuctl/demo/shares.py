"""The demo's act about shares: pods compute side by side on one GPU, and MPS holds each to its part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from driver.devices.names import unshared_name
from driver.devices.sharing import split_shared_suffix
from driver.nvml.modes import ComputeMode
from gpuctl.demo.objects import SHARE_CLASS, share_pods
from gpuctl.demo.pods import DemoFailed, PodFacts, check_nothing_left, is_gpu_node, labels, run
from gpuctl.node.picture import GpuFacts

if TYPE_CHECKING:
    from gpuctl.demo.cluster import DemoCluster
    from gpuctl.demo.narrator import Narrator

PODS = 4
MODE: ComputeMode = "exclusive-process"
GIB_IN_MIB = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What MPS lets each process of a pod have: percent of the threads, and MiB of memory."""

    pod: str
    percentage: float
    memory_mib: int


@dataclass(frozen=True, slots=True)
class ShareFacts:
    """What the act showed: the pods that shared ``gpu``, a device name, and the limits that MPS told them.

    ``modes`` are the GPUs that were in another compute mode than the default meanwhile.
    """

    gpu: str
    pods: tuple[PodFacts, ...]
    limits: tuple[Limits, ...]
    modes: Mapping[str, ComputeMode]


def share_act(cluster: DemoCluster, narrator: Narrator, gpus: Sequence[GpuFacts]) -> ShareFacts | None:
    """Play the act on a node whose pods all ended; None where MPS can share none of its GPUs.

    Raises DemoFailed, and what the cluster raises.
    """
    if not any(name.startswith("MPS:") for gpu in gpus for name, _ in gpu.forms):
        narrator.say("no act about shares: MPS cannot hold pods to limits on these GPUs")
        return None
    wanted = share_pods(PODS)
    pods = run(cluster, *wanted)
    told = [(pod.name, cluster.mps_limits(pod)) for pod in wanted]
    limits = tuple(Limits(name, one.percentage, one.pinned_mib.get("0", 0)) for name, one in told)
    modes = cluster.compute_modes()
    gpu = check_shares(gpus, pods, limits, modes)
    names = f"[bold]{pods[0].name}[/bold] to [bold]{pods[-1].name}[/bold]"
    narrator.say(f"pods {names} (class {SHARE_CLASS}) compute at once on GPU {labels([gpu], gpus)}")
    narrator.show(limits_table(limits))
    cluster.end(*wanted)
    check_nothing_left(cluster)
    left = cluster.compute_modes()
    if left:
        raise DemoFailed(f"all pods ended, but the compute mode is still {left}", "look at the plugin's log")
    narrator.say(f"they ended: MPS is stopped, GPU {labels([gpu], gpus)} is whole again")
    return ShareFacts(gpu, pods, limits, modes)


def check_shares(
    gpus: Sequence[GpuFacts],
    pods: Sequence[PodFacts],
    limits: Sequence[Limits],
    modes: Mapping[str, ComputeMode],
) -> str:
    """The GPU that the pods share, by its device name.

    Raises DemoFailed unless it is one GPU, closed to all but MPS, and no pod has more than its part of it.
    """
    (device, *others) = {device for pod in pods for device in pod.devices}
    seen = {node for pod in pods for one in pod.containers for node in filter(is_gpu_node, one.device_nodes)}
    _, form = split_shared_suffix(device)
    gpu = next((one for one in gpus if one.device == unshared_name(device)), None)
    if others or len(seen) != 1 or gpu is None or form is None:
        raise DemoFailed(f"the pods have {[device, *others]} and see {sorted(seen)}: not shares of one GPU")
    if modes != {gpu.device: MODE}:
        raise DemoFailed(f"the pods share {gpu.device} by MPS, but the compute modes are {dict(modes)}")
    part = form.shares or PODS
    memory_mib = (gpu.shareable_bytes or 0) // part >> 20
    for one in limits:
        if one.percentage != 100 // part or one.memory_mib != memory_mib:
            raise DemoFailed(f"a share is {100 // part} percent and {memory_mib} MiB, but MPS says {one}")
    return gpu.device


def limits_table(limits: Sequence[Limits]) -> Table:
    """What MPS told each pod, in at most 80 columns."""
    table = Table(title="What MPS lets each pod have", box=box.ROUNDED)
    table.add_column("Pod")
    table.add_column("Threads", justify="right")
    table.add_column("Memory", justify="right")
    for one in limits:
        table.add_row(one.pod, f"{one.percentage:g} %", f"{one.memory_mib / GIB_IN_MIB:.1f} GiB")
    return table
