"""The demo's act about shares: what it says of limits is what MPS told, and a wrong one ends the story."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any

import pytest
from rich.console import Console

from driver.nvml.modes import ComputeMode
from gpuctl.demo.cluster import DemoCluster
from gpuctl.demo.pods import ContainerFacts, DemoFailed, PodFacts
from gpuctl.demo.story import Limits, Narrator, StoryFacts, check_shares, tell
from gpuctl.plan.node_gpus import GpuFacts

GPU = GpuFacts(
    *("gpu-0000-1b-00-0", 0, "H100", "0000:1b:00.0", 0, 81 * 2**30, None, ()), shareable_bytes=80 * 2**30
)
OTHER = replace(GPU, device="gpu-0000-43-00-0", index=1)
EXCLUSIVE: dict[str, ComputeMode] = {GPU.device: "exclusive-process"}


Story = tuple[StoryFacts, str]


def played(machine: str) -> Story:
    """The story on a machine, with its text."""
    text = io.StringIO()
    with closing(DemoCluster("embedded", machine)) as cluster:
        return tell(cluster, Narrator(Console(file=text, width=80))), text.getvalue()


@pytest.fixture(scope="module")
def a30() -> Story:
    """The story on four GPUs whose MIG mode only a reset changes."""
    return played("a30-quad")


def test_what_the_containers_get_is_what_their_claims_hold(a30: Story) -> None:
    facts: dict[str, Any] = json.loads(json.dumps(asdict(a30[0])))  # as the command prints them
    assert facts["partitions"] is None, "the MIG mode of an A30 changes only with a reset"
    pods = {pod["name"]: pod for pod in facts["pods"]}
    index = {gpu["device"]: gpu["index"] for gpu in facts["gpus"]}
    for pod in pods.values():
        # The minors of this machine are its indexes.
        expected = {f"/dev/nvidia{index[device]}" for device in pod["devices"]}
        for container in pod["containers"]:
            nodes = set(container["device_nodes"])
            assert {node for node in nodes if node[len("/dev/nvidia") :].isdecimal()} == expected
            assert {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"} <= nodes
            assert container["env"] == {
                "NVIDIA_VISIBLE_DEVICES": "void",
                "NVIDIA_CTK_LIBCUDA_DIR": "/usr/lib/x86_64-linux-gnu",
            }
            assert container["mounts"] > 10
    server, sidecar = pods["duo"]["containers"]
    assert (server["name"], sidecar["name"]) == ("server", "sidecar")
    assert server["device_nodes"] == sidecar["device_nodes"]


def test_four_pods_share_a_gpu_and_mps_tells_each_of_a_quarter(a30: Story) -> None:
    facts, text = a30

    act = facts.shares
    assert act is not None
    assert [one.name for one in act.pods] == ["share-0", "share-1", "share-2", "share-3"]
    assert {one.devices for one in act.pods} == {(f"{act.gpu}-mps-4-mem",)}
    assert [(one.percentage, one.memory_mib) for one in act.limits] == [(25.0, 6016)] * 4
    assert act.modes == {act.gpu: "exclusive-process"}
    assert "│ share-3 │    25 % │ 5.9 GiB │" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_guest_with_a_vgpu_has_no_mps_and_the_story_says_so() -> None:
    facts, text = played("a100-vgpu-guest")

    assert facts.shares is None
    assert "the part about shares is skipped" in text


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
