"""The demo's story as it is told, and that it ends where pods get more or less than their part."""

import io
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest
from rich.console import Console

from gpuctl.demo.objects import story_pods
from gpuctl.demo.story import (
    ContainerFacts,
    DemoFailed,
    Limits,
    Narrator,
    PodFacts,
    check_partitions,
    check_shares,
    tell,
)
from gpuctl.plan.node_gpus import GpuFacts
from tests.clusters import DemoCluster
from tests.gpuctl.approved import approve
from tests.gpus import Placement

GPU = GpuFacts(
    *("gpu-0000-1b-00-0", 0, "H100", "0000:1b:00.0", 0, 81 * 2**30, None, ()), shareable_bytes=80 * 2**30
)
OTHER = replace(GPU, device="gpu-0000-43-00-0", index=1)


@pytest.mark.parametrize("machine", ["hgx-h100", "gh200", "a30-quad", "a100-vgpu-guest"])
def test_the_story_is_told(machine: str) -> None:
    text = io.StringIO()
    with closing(DemoCluster("embedded", machine)) as cluster:
        tell(cluster, Narrator(Console(file=text, width=80)))

    told = re.sub(r"(?m)^ +\d+\.\d s", "  . s", text.getvalue())
    approve(f"demo/{machine}", re.sub(r"(?m) +$", "", told))


@pytest.mark.parametrize("gpu_count", range(1, 17))
def test_the_pods_take_all_gpus_and_one_more_is_left_over(gpu_count: int) -> None:
    pods, late = story_pods(gpu_count)

    assert sum(pod.count for pod in pods) == gpu_count
    assert pods[0].count >= late.count == 1
    assert len({pod.name for pod in (*pods, late)}) == len(pods) + 1


def pod(device: str, *nodes: str) -> PodFacts:
    return PodFacts(f"pod-{device}", (device,), (ContainerFacts("main", nodes, {}),))


def small(index: int, gpu: GpuFacts = GPU) -> PodFacts:
    """A pod with the partition at this memory slice: the GPU's node and two capability nodes of its own."""
    caps = (f"/dev/nvidia-caps/nvidia-cap{2 * index}", f"/dev/nvidia-caps/nvidia-cap{2 * index + 1}")
    return pod(f"{gpu.device}-mig-1g-10gb-{index}", "/dev/nvidia0", *caps)


def partitions(*pods: PodFacts, made: tuple[int, ...] = (0, 1)) -> Callable[[], str]:
    instances = {GPU.device: tuple(Placement(start, 1) for start in made)}
    return lambda: check_partitions(GPU, pods, instances)


def shares(second: PodFacts, percentage: float = 25.0, memory_mib: int = 20480) -> Callable[[], str]:
    pods = [pod(f"{GPU.device}-mps-4", "/dev/nvidia0"), second]
    limits = [Limits("first", 25.0, 20480), Limits("second", percentage, memory_mib)]
    return lambda: check_shares([GPU, OTHER], pods, limits)


SHARE = pod(f"{GPU.device}-mps-4", "/dev/nvidia0")
NEIGHBOUR = replace(small(0), devices=small(1).devices)


def test_pods_with_their_parts_of_one_gpu_pass() -> None:
    assert (partitions(small(1), small(0))(), shares(SHARE)()) == ("/dev/nvidia0", GPU.device)


@pytest.mark.parametrize(
    ("check", "named"),
    [
        (partitions(small(0), small(1), made=(0, 1, 2)), "the machine made"),
        (partitions(small(0, gpu=OTHER), made=(0,)), "not a partition of"),
        (partitions(small(0), NEIGHBOUR), "capability nodes"),
        (shares(pod(f"{OTHER.device}-mps-4", "/dev/nvidia0")), "not shares of one GPU"),
        (shares(SHARE, percentage=100.0), "25 percent"),
        (shares(SHARE, memory_mib=0), "20480 MiB"),
    ],
    ids=range(6),
)
def test_pods_that_see_more_or_less_than_their_part_end_the_story(
    check: Callable[[], str], named: str
) -> None:
    with pytest.raises(DemoFailed, match=named):
        check()
