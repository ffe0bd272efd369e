"""The demo's act about shares: what it says of limits is what MPS told, and a wrong one ends the story."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace

import pytest
from rich.console import Console

from driver.nvml.api import ComputeMode
from gpuctl.demo_cluster import DemoCluster
from gpuctl.demo_narrator import Narrator
from gpuctl.demo_pods import ContainerFacts, DemoFailed, PodFacts
from gpuctl.demo_shares import Limits, check_shares
from gpuctl.demo_story import StoryFacts, tell
from gpuctl.node_picture import GpuFacts

GPU = GpuFacts("gpu-0000-1b-00-0", 0, "H100", "0000:1b:00.0", 0, 80 * 2**30, None, ())
OTHER = replace(GPU, device="gpu-0000-43-00-0", index=1)
EXCLUSIVE: dict[str, ComputeMode] = {GPU.device: "exclusive-process"}


def played(machine: str) -> tuple[StoryFacts, str]:
    """The story on a machine, with its text."""
    text = io.StringIO()
    with closing(DemoCluster("embedded", machine)) as cluster:
        return tell(cluster, Narrator(Console(file=text, width=80))), text.getvalue()


def test_four_pods_share_a_gpu_and_mps_tells_each_of_a_quarter() -> None:
    facts, text = played("a30-quad")

    act = facts.shares
    assert act is not None
    assert [one.name for one in act.pods] == ["share-0", "share-1", "share-2", "share-3"]
    assert {one.devices for one in act.pods} == {(f"{act.gpu}-mps-4",)}
    assert [(one.percentage, one.memory_mib) for one in act.limits] == [(25.0, 6144)] * 4
    assert act.modes == {act.gpu: "exclusive-process"}
    assert "│ share-3 │    25 % │ 6.0 GiB │" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_guest_with_a_vgpu_has_no_mps_and_the_story_says_so() -> None:
    facts, text = played("a100-vgpu-guest")

    assert facts.shares is None
    assert "no act about shares" in text


def pod(index: int, device: str = f"{GPU.device}-mps-4", node: str = "/dev/nvidia0") -> PodFacts:
    return PodFacts(f"share-{index}", (device,), (ContainerFacts("main", (node, "/dev/nvidiactl"), {}, 0),))


def quarter(index: int) -> Limits:
    return Limits(f"share-{index}", 25.0, 20480)


def test_pods_with_their_parts_of_one_gpu_pass() -> None:
    limits = [quarter(0), quarter(1)]
    assert check_shares([GPU, OTHER], [pod(0), pod(1)], limits, EXCLUSIVE) == GPU.device


def wrong() -> Iterator[tuple[PodFacts, Limits, Mapping[str, ComputeMode], str]]:
    """The second pod, its limits, compute modes, and a word of the complaint."""
    good = pod(1), quarter(1), EXCLUSIVE
    yield pod(1, f"{OTHER.device}-mps-4"), *good[1:], "not shares of one GPU"
    yield pod(1, node="/dev/nvidia1"), *good[1:], "not shares of one GPU"
    yield good[0], replace(quarter(1), percentage=100.0), EXCLUSIVE, "25 percent"
    yield good[0], replace(quarter(1), memory_mib=0), EXCLUSIVE, "20480 MiB"
    yield *good[:2], {}, "compute modes"
    yield *good[:2], {**EXCLUSIVE, OTHER.device: "prohibited"}, "compute modes"


@pytest.mark.parametrize(("second", "limits", "modes", "named"), list(wrong()))
def test_pods_with_more_than_their_parts_end_the_story(
    second: PodFacts, limits: Limits, modes: Mapping[str, ComputeMode], named: str
) -> None:
    with pytest.raises(DemoFailed, match=named):
        check_shares([GPU, OTHER], [pod(0), second], [quarter(0), limits], modes)


def test_a_whole_gpu_is_no_share() -> None:
    with pytest.raises(DemoFailed, match="not shares"):
        check_shares([GPU], [pod(0, GPU.device)], [quarter(0)], EXCLUSIVE)
